"""Makes a repository of any size out of random names, and knows where everything is in it.

It owns the planting: files in a dozen languages, a definition, uses and calls of each planted name
at known lines, and decoys beside them: longer names, comments, strings, files that git ignores. The
questions about it, each with the places that a right answer names, are its result; asking them is
the business of the tests.
"""

from __future__ import annotations

import os
import random
import string
from dataclasses import dataclass, field
from pathlib import Path

FILES_PER_FOLDER = 100


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to define and use a name in a language; NAME is the name, {} a filler's number."""

    ending: str
    definition: str
    use: str
    filler: str
    comment: str
    capital: bool = False


KINDS = (
    Kind("py", "def NAME(first, second=None):", "    result = NAME(1, second=2)",
         "def filler_{}(x):\n    return x", "# NAME is mentioned here"),
    Kind("py", "class NAME(Base):", "    made = NAME()",
         "VALUE_{} = {}", "# see NAME", capital=True),
    Kind("py", "NAME: Final = 3.5", "    total = NAME + 1",
         "def more_{}():\n    pass", "# NAME bounds it"),
    Kind("js", "export async function NAME(first) {", "  const got = await NAME(1);",
         "function filler{}(x) {\n  return x;\n}", "// NAME was here"),
    Kind("ts", "export interface NAME {", "  let one: NAME = make();",
         "export const other{} = {};", "// NAME is a type", capital=True),
    Kind("ts", "export const NAME = (first: number): number => {", "  total += NAME(2);",
         "type Alias{} = string;", "// NAME adds"),
    Kind("go", "func (s *Store) NAME(ctx context.Context) error {", "\terr := store.NAME(ctx)",
         "func filler{}() int {\n\treturn {}\n}", "// NAME stores", capital=True),
    Kind("go", "type NAME struct {", "\tvar one NAME",
         "func other{}() {\n}", "// NAME holds it", capital=True),
    Kind("rs", "pub(crate) fn NAME<T: Clone>(value: T) -> T {", "    let got = NAME(5);",
         "fn filler_{}() -> u32 {\n    {}\n}", "// NAME clones"),
    Kind("rs", "pub struct NAME {", "    let one = NAME::default();",
         "const OTHER_{}: u32 = {};", "// NAME is plain", capital=True),
    Kind("java", "    public static List<String> NAME(Map<String, Integer> input) {",
         "        List<String> got = NAME(input);",
         "    int filler{}() {\n        return {};\n    }", "    // NAME lists"),
    Kind("c", "static struct node *NAME(const char *key, size_t size)", "    n = NAME(key, 4);",
         "static int filler_{}(void)\n{\n    return {};\n}", "/* NAME finds a node */"),
    Kind("cpp", "void Engine::NAME(const std::string& text) const {", "    engine.NAME(text);",
         "int other_{}() {\n    return {};\n}", "// NAME runs"),
    Kind("cs", "    public async Task<int> NAME(string text)",
         "        var got = await NAME(text);",
         "    private int _other{} = {};", "    // NAME waits", capital=True),
    Kind("rb", "  def NAME(first, second = nil)", "    got = NAME(1)",
         "  def filler_{}\n    {}\n  end", "  # NAME helps"),
    Kind("php", "    protected function NAME(array $input): ?string",
         "        $got = $this->NAME($input);",
         "    private $other{} = {};", "    // NAME reads"),
    Kind("kt", "    private suspend fun NAME(text: String): Int {", "        val got = NAME(text)",
         "    fun filler{}() = {}", "    // NAME suspends"),
    Kind("swift", "    public func NAME(for key: String) -> Int {",
         "        let got = NAME(for: key)",
         "    let other{} = {}", "    // NAME counts"),
    Kind("sh", "NAME() {", "    NAME one two", "filler_{}() {\n    echo {}\n}", "# NAME prints"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the places that its answer has to name."""

    text: str
    first: str
    """The place that comes first, as ``path:line``; empty if the order does not matter."""
    places: frozenset[str]
    """All places that an answer lists, and no others."""


@dataclass(slots=True)
class Repository:
    """A folder that was made, and what can be asked about it."""

    root: Path
    questions: list[Asked] = field(default_factory=list)
    files: int = 0


class _Maker:
    def __init__(self, root: Path, seed: int) -> None:
        self.repository = Repository(root)
        self.random = random.Random(seed)
        self._taken: set[str] = set()
        self._filled: dict[str, str] = {}

    def name(self, *, capital: bool) -> str:
        """A name that nothing else in the repository has."""
        while True:
            words = ["".join(self.random.choices(string.ascii_lowercase, k=6)) for _ in range(2)]
            name = "".join(word.title() for word in words) if capital else "_".join(words)
            if name not in self._taken:
                self._taken.add(name)
                return name

    def plant(self, kind: Kind) -> None:
        """One name: its definition, its uses, its decoys, and the question about it."""
        name = self.name(capital=kind.capital)
        defined, used, decoy = (self.place(kind) for _ in range(3))
        definition = self.write(defined, kind, kind.definition.replace("NAME", name))
        uses = {
            self.write(used, kind, kind.use.replace("NAME", name)),
            self.write(self.place(kind), kind, kind.use.replace("NAME", name)),
        }
        longer = kind.definition.replace("NAME", f"{name}_more")
        self.write(decoy, kind, longer)
        self.write(self.place(kind), kind, kind.definition.replace("NAME", f"un{name}"))
        # Only what is no definition may hold the name itself: a comment is a use of sorts.
        mention = self.write(self.place(kind), kind, kind.comment.replace("NAME", name))
        ignored = self.repository.root / "ignored" / f"{name}.{kind.ending}"
        ignored.parent.mkdir(exist_ok=True)
        ignored.write_text(kind.definition.replace("NAME", name) + "\n")
        turn = len(self.repository.questions) % 5
        if turn == 3:
            text = f"where is {name} used?"
            asked = Asked(text, "", frozenset({definition, mention, *uses}))
        elif turn == 4 and "(" in kind.use.partition("NAME")[2][:2]:
            asked = Asked(f"who calls {name}?", "", frozenset({definition, *uses}))
        else:
            forms = (
                "where is {} defined?",
                "Which file defines `{}`?",
                "/find {}",
                "could you tell me where {} is declared, please?",
            )
            form = self.random.choice(forms)
            asked = Asked(form.format(name), definition, frozenset({definition}))
        self.repository.questions.append(asked)

    def place(self, kind: Kind) -> str:
        """A path for one more file."""
        number = self.repository.files
        self.repository.files += 1
        folder = number // FILES_PER_FOLDER
        return f"part{folder // 20:03}/unit{folder:04}/file{number:06}.{kind.ending}"

    def write(self, path: str, kind: Kind, line: str) -> str:
        """A file with a line somewhere between fillers. Returns where the line is."""
        before = self.random.randrange(1, 30)
        text = self.fillers(kind, before) + line + "\n"
        number = text.count("\n")
        text += self.fillers(kind, self.random.randrange(1, 5))
        self.put(path, text)
        return f"{path}:{number}"

    def fillers(self, kind: Kind, count: int) -> str:
        numbers = (str(self.random.randrange(10**6)) for _ in range(count))
        return "".join(kind.filler.replace("{}", number) + "\n" for number in numbers)

    def fill(self, path: str, text: str) -> None:
        """One more file without anything in it that is asked for.

        Most are further names of a few files: that makes and removes them several times as fast,
        and whoever searches them opens and reads each anyway.
        """
        first = self._filled.get(text)
        if first is not None:
            try:
                os.link(first, os.path.join(self.repository.root, path))
                return
            except OSError:
                pass  # The folder is not there yet, or a file has as many names as it may have.
        self.put(path, text)
        self._filled[text] = os.path.join(self.repository.root, path)

    def put(self, path: str, text: str) -> None:
        where = os.path.join(self.repository.root, path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            fd = os.open(where, flags, 0o644)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(where))
            fd = os.open(where, flags, 0o644)
        os.write(fd, text.encode())
        os.close(fd)


def make(root: Path, *, files: int, questions: int, seed: int) -> Repository:
    """Make a repository with at least so many files below a folder that is there."""
    maker = _Maker(root, seed)
    (root / ".gitignore").write_text("/ignored/\n*.log\n")
    # What is asked for lies among the rest, and not all in the first folders.
    plants = [KINDS[number % len(KINDS)] for number in range(questions)]
    filler = [kind.filler.replace("{}", "7") + "\n" for kind in KINDS]
    each = max(1, (files - questions * 7) // max(1, questions))
    for number, kind in enumerate(plants):
        maker.plant(kind)
        for more in range(each):
            other = KINDS[(number + more) % len(KINDS)]
            maker.fill(maker.place(other), filler[(number + more) % len(KINDS)])
    while maker.repository.files < files:
        maker.fill(maker.place(KINDS[0]), filler[0])
    maker.random.shuffle(maker.repository.questions)
    return maker.repository
