// Turns slides: which column is in view, its number and heading below it, the whole enlarged to the window.
const deck = document.querySelector("main"), wide = 1120, high = 630, leastScale = 0.94;
const nav = document.body.appendChild(document.createElement("nav"));
nav.innerHTML = '<span></span><button title="back: ←">‹</button><span></span><button title="on: →">›</button>';
const [where, back, number, on] = nav.children;
let at = 0;

const scale = () => Math.min(innerWidth / wide, innerHeight / high);
const count = () => Math.round(deck.scrollWidth / wide);
const place = box => (box.left - deck.getBoundingClientRect().left) / scale() + deck.scrollLeft;  // in the page's pixels
const column = box => Math.floor(place(box) / wide);

function fit() {
  const [x, y] = [innerWidth - wide * scale(), innerHeight - high * scale()];
  document.body.style.setProperty("--fit", `translate(${x / 2}px, ${y / 2}px) scale(${scale()})`);
}

function isCut(cell) {
  const boxes = [...cell.getClientRects()].filter(box => box.height > 0);
  return column(boxes.at(-1)) > column(boxes[0]);
}

// A cell on two slides did not fit on one: it may begin on the slide before. A picture that almost fits below its code shrinks.
function pour() {
  for (const cell of [...deck.querySelectorAll(".jp-Cell")]) {
    const picture = isCut(cell) && cell.querySelector("img");
    if (picture) {
      picture.style.maxHeight = `${leastScale * picture.height}px`;
      if (isCut(cell)) picture.style.maxHeight = "";
    }
    if (isCut(cell)) cell.classList.add("long");
  }
}

// Pictures grow into what is left of their slides.
function enlarge() {
  const room = name => parseFloat(getComputedStyle(document.documentElement).getPropertyValue(name)), slides = count();
  for (const picture of deck.querySelectorAll("img:not([style*=max-height])")) {  // none that had to shrink
    const cell = picture.closest(".jp-Cell"), was = isCut(cell);
    const most = Math.min(room("--wide"), room("--high") * picture.naturalWidth / picture.naturalHeight);
    for (const width of [most, (most + picture.width) / 2]) {
      picture.style.width = `${width}px`;
      if (count() === slides && isCut(cell) === was) break;
      picture.style.width = "";
    }
  }
}

function show(to) {
  at = Math.max(0, Math.min(count() - 1, to));
  deck.scrollLeft = at * wide;
  const [title, ...headings] = [...deck.querySelectorAll("h1, h2")].filter(h => column(h.getBoundingClientRect()) <= at);
  where.textContent = [title, headings.at(-1)].map(heading => heading?.firstChild.textContent).filter(Boolean).join(" · ");
  number.textContent = `${at + 1} / ${count()}`;
  history.replaceState(null, "", `#${at + 1}`);
}

function follow() {  // the address: a slide's number or a heading's name
  const name = decodeURIComponent(location.hash.slice(1)), target = document.getElementById(name);
  show(target ? column(target.getBoundingClientRect()) : (parseInt(name) || 1) - 1);
}

const steps = {ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1, Home: -1e9, End: 1e9};
addEventListener("keydown", event => {
  const onControl = event.key === " " && event.target.closest("button, summary, a");
  if (!(event.key in steps) || onControl || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  show(at + steps[event.key]);
});
back.onclick = () => show(at - 1);
on.onclick = () => show(at + 1);
addEventListener("resize", fit);
deck.addEventListener("scrollend", () => show(Math.round(deck.scrollLeft / wide)));  // to a word found, by the Tab key
deck.addEventListener("toggle", () => show(at), true);  // an unfolded tip moves what follows
addEventListener("hashchange", follow);
addEventListener("load", () => { fit(); pour(); enlarge(); follow(); });
