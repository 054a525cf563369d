"""The body of a kernel: declarations, labels and instructions, with the functions that it calls written into it."""

import re
from collections import ChainMap

from helpers.simt.faults import UnknownInstruction
from helpers.simt.kernel import NAME, SIZES, Instruction, Kernel, array, matching

# What a body consists of. Operands may be braced lists; other braces are scopes of declarations.
STATEMENT = re.compile(r"""
    (?P<loc>\.loc\b[^\n]*) | (?P<brace>[{}]) | (?P<label>[\w$]+):(?!:) |
    (?P<text>[^\s;{}][^;{}]*(?:\{[^{}]*\}[^;{}]*)*);
""", re.VERBOSE)
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
LABEL = re.compile(r"^\s*([\w$]+):(?!:)", re.MULTILINE)
CALL = re.compile(r"call(?:\.uni)?\s*(?:\(([^)]*)\)\s*,\s*)?([\w$%]+)\s*(?:,\s*\(([^)]*)\))?\s*(?:,\s*[\w$]+)?$")
BUILT_IN = {"vprintf", "__assertfail"}  # functions that are instructions of this machine


class Body:
    """Fills in a kernel's registers, arrays, labels and instructions from the PTX between two positions.

    `names` maps what a nested scope or a called function declares to names that are unique in the kernel. The kernel's
    own declarations keep theirs.
    """

    def __init__(self, text: str, kernel: Kernel):
        self.text, self.kernel = text, kernel
        self.own_file, self.source_line = None, None
        self.copies = 0  # of names made so far
        self.shared: dict[tuple, tuple[str, str]] = {}  # shared arrays by their place in the text: their name, and its unique form

    def read(self, start: int, end: int, names=None, calls=(), leave: str | None = None) -> None:
        """`calls`: the functions that are being written in, outermost first; `leave`: the label that `ret` goes to."""
        names = ChainMap() if names is None else names
        line, at, label = self.text.count("\n", 0, start) + 1, start, None
        for match in STATEMENT.finditer(self.text, start, end):
            line, at = line + self.text.count("\n", at, match.start()), match.start()
            if match["loc"]:
                self._location(match["loc"])
            elif match["label"]:
                label = names.get(match["label"], match["label"])
                self.kernel.labels[label] = len(self.kernel.instructions)
            elif match["brace"] == "{":
                names = names.new_child()
                self._labels(at + 1, matching(self.text, at), names)
            elif match["brace"]:
                names = names.parents
            else:
                self._statement(" ".join(match["text"].split()), line, names, label, calls, leave)

    def _labels(self, start: int, end: int, names) -> None:
        for name in LABEL.findall(self.text, start, end):
            self._declare(name, names, nested=True)

    def _declare(self, name: str, names, nested: bool) -> str:
        """The name's unique form, from now on in this scope."""
        if not nested:
            return name
        self.copies += 1
        names[name] = f"{name}$${self.copies}"
        return names[name]

    def _statement(self, statement: str, line: int, names, label, calls, leave) -> None:
        directive = re.match(r"\.(\w+)\s*(.*)$", statement)
        nested = len(names.maps) > 1 or bool(calls)
        if directive is None:
            if ".callprototype" not in statement:
                self._instruction(statement, line, names, calls, leave)
            return
        kind, rest = directive.groups()
        if kind == "reg":
            self._registers(rest, names, nested)
        elif kind in ("shared", "local", "param"):
            self._array(kind, rest, line, names, nested)
        elif kind == "branchtargets":
            self.kernel.tables[label] = [names.get(t.strip(), t.strip()) for t in rest.split(",")]
        elif kind != "pragma":
            raise UnknownInstruction(f"PTX line {line}: cannot read {statement!r}")

    def _array(self, kind: str, declaration: str, line: int, names, nested: bool) -> None:
        place = line, declaration
        if place in self.shared:  # of a function that was called before: all calls have the same one
            name, made = self.shared[place]
            names[name] = made
            return

        def unique(name: str) -> str:
            made = self._declare(name, names, nested)
            if kind == "shared":
                self.shared[place] = name, made
            return made
        # arguments of called functions are kept in local memory
        array(declaration, self.kernel, "shared" if kind == "shared" else "local", unique)

    def _registers(self, declaration: str, names, nested: bool) -> None:
        kind, listed = re.match(r"\.(\w+)\s+(.*)", declaration).groups()
        if kind != "pred" and kind not in SIZES:
            raise UnknownInstruction(f"registers of type .{kind}")
        for name in listed.split(","):
            ranged = re.match(r"\s*(%?[\w$]+)<(\d+)>", name)
            found = [f"{ranged.group(1)}{i}" for i in range(int(ranged.group(2)))] if ranged else [name.strip()]
            for one in found:
                self.kernel.registers[self._declare(one, names, nested)] = 0 if kind == "pred" else SIZES[kind]

    def _instruction(self, statement: str, line: int, names, calls, leave) -> None:
        match = re.match(r"(?:@\s*(!?)\s*(%?[\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)$", statement)
        if not match:
            raise UnknownInstruction(f"PTX line {line}: cannot read {statement!r}")
        negated, predicate, opcode, rest = match.groups()
        parts = tuple(opcode.split("."))
        if parts[0] == "call":
            return self._call(statement, line, names, calls)
        if parts == ("ret",) and leave is not None:
            parts, rest = ("bra",), leave
        elif any(names.maps):
            rest = NAME.sub(lambda m: names.get(m.group(), m.group()), rest)
            predicate = names.get(predicate, predicate)
        operands = [part.strip() for part in OPERAND.findall(rest)]
        self._add(Instruction(parts, operands, predicate, bool(negated), statement, line, self.source_line, 0))

    def _add(self, instruction: Instruction) -> None:
        instruction.index = len(self.kernel.instructions)
        self.kernel.instructions.append(instruction)

    # ------------------------------------------------------------------------------------------ calls

    def _call(self, statement: str, line: int, names, calls) -> None:
        """Write a function's body in place of its call: its parameters are the caller's own arrays of arguments."""
        match = CALL.match(statement)
        if not match:
            raise UnknownInstruction(f"PTX line {line}: {statement!r} is not implemented")
        results, function, given = match.groups()
        given = [names.get(name.strip(), name.strip()) for name in (given or "").split(",") if name.strip()]
        results = [names.get(name.strip(), name.strip()) for name in (results or "").split(",") if name.strip()]
        if function in BUILT_IN:
            parts = ("call", function)
            return self._add(Instruction(parts, results + given, None, False, statement, line, self.source_line, 0))
        if function in calls:
            raise UnknownInstruction(f"PTX line {line}: {statement!r} is not implemented: a function that calls itself")
        head = re.search(rf"\.func\s+(?:\(([^)]*)\)\s*)?{re.escape(function)}\s*(?:\(([^)]*)\))?[^{{;]*\{{", self.text)
        if not head:
            why = "a call through a pointer" if function.startswith("%") else "the PTX does not contain that function"
            raise UnknownInstruction(f"PTX line {line}: {statement!r} is not implemented: {why}")
        formal = [re.findall(r"[\w$]+", p.split("[")[0])[-1] for part in head.groups() for p in (part or "").split(",") if p.strip()]
        inner = ChainMap(dict(zip(formal, results + given, strict=True)))
        start, end = head.end(), matching(self.text, head.end() - 1)
        self._labels(start, end, inner)
        self.copies += 1
        leave, here = f"after$${self.copies}", self.source_line
        self.read(start, end, inner, (*calls, function), leave)
        self.kernel.labels[leave] = len(self.kernel.instructions)
        self.source_line = here

    def _location(self, loc: str) -> None:
        """The kernel's file is the first one named; a chain of inlined calls gives its innermost line in that file."""
        places = re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", loc)
        self.own_file = self.own_file or places[0][0]
        called = re.search(r"called_at (\d+)", loc)
        lines = [int(number) for file, number in places if file == self.own_file]
        if called and places[0][0] != self.own_file:
            lines.append(int(called.group(1)))
        # line 0: the compiler's own, no line
        self.source_line = next((number for number in lines if number), self.source_line)
