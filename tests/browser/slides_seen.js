() => {
  // Where every letter and picture of a deck stands, in the pixels of the slide that it is on.
  const main = document.querySelector("main"), frame = main.getBoundingClientRect(), scale = frame.width / 1120;
  const first = frame.left - main.scrollLeft * scale;
  const seen = {slides: Math.round(main.scrollWidth / 1120), texts: 0, cut: [], small: [], hidden: [], used: new Set()};
  function stands(rects, name) {
    for (const rect of [...rects].filter(r => r.width > 0.5 && r.height > 0.5)) {
      const left = (rect.left - first) / scale, slide = Math.floor(left / 1120), end = (rect.right - first) / scale - slide * 1120;
      seen.used.add(slide);
      if (left % 1120 < 38 || end > 1082 || rect.top < frame.top || rect.bottom > frame.bottom + 1)
        seen.cut.push([slide + 1, name, Math.round(left % 1120), Math.round(end), Math.round(rect.bottom)]);
    }
  }
  const walker = document.createTreeWalker(main, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.tagName === "IMG") {
      stands(node.getClientRects(), node.alt.slice(0, 30));
      const shown = node.getBoundingClientRect();  // a picture larger than a slide must shrink; others keep their letters
      const stretched = shown.width / shown.height / (node.naturalWidth / node.naturalHeight);
      if (Math.abs(stretched - 1) > 0.02) seen.small.push([node.alt.slice(0, 30), "stretched", stretched]);
      const fits = Math.min(1, 1040 / node.naturalWidth, 590 / node.naturalHeight);
      if (shown.width / scale / node.naturalWidth < Math.min(0.935, fits - 0.01)) seen.small.push([node.alt.slice(0, 30), shown.width]);
      continue;
    }
    const inside = node.parentElement;
    if (node.nodeType !== Node.TEXT_NODE || !node.data.trim() || inside.closest("style, script, .anchor-link, details > :not(summary)")) continue;
    const name = node.data.trim().slice(0, 30), letters = parseFloat(getComputedStyle(inside).fontSize) * scale;
    const range = document.createRange();
    range.selectNodeContents(node);
    seen.texts += 1;
    if (letters < 13.99) seen.small.push([name, letters]);
    if (!inside.checkVisibility() || !range.getClientRects().length) seen.hidden.push(name);
    stands(range.getClientRects(), name);
  }
  seen.empty = seen.slides - seen.used.size;
  return seen;
}
