"""Holds the repository to its own rules: import direction, no circles, names, and what must never be in a file.

Everything is read from the syntax tree, so a module is checked without being imported. What is only guidance (long
functions and modules) is printed and never fails: a person decides.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent

# Which of our own packages each one may import, besides itself (docs/architecture.md). Nothing may import actors.
MAY_IMPORT: Final[dict[str, frozenset[str]]] = {
    "schemas": frozenset(),
    "gym_bus": frozenset({"schemas"}),
    "gym_bus.cli": frozenset({"gym_bus", "schemas", "projections", "adapters"}),
    "projections": frozenset({"schemas", "gym_bus"}),
    "providers": frozenset({"schemas", "gym_bus"}),
    "tools": frozenset({"schemas", "gym_bus", "providers"}),
    "adapters": frozenset({"schemas", "gym_bus", "providers", "tools"}),
    "actors": frozenset({"schemas", "gym_bus", "projections", "providers", "tools", "adapters"}),
}
PACKAGES: Final = tuple(name for name in MAY_IMPORT if "." not in name)
OURS: Final = frozenset({*PACKAGES, "tests"})
SCHEMAS_MAY_USE: Final = sys.stdlib_module_names | {"pydantic"}

FUNCTION_LINES: Final = 70
MODULE_LINES: Final = 500

VAGUE_WORDS: Final = frozenset({"manager", "helper", "util", "common", "misc"})
STALE_NAME: Final = re.compile(r"(_v|V)[2-9]$|^_?new_|enhanced", re.IGNORECASE)

BANNED_CALLS: Final = frozenset(
    {"eval", "exec", "builtins.eval", "builtins.exec", "yaml.unsafe_load", "yaml.full_load"}
)
BANNED_MODULES: Final = frozenset({"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve"})
SAFE_LOADERS: Final = frozenset({"SafeLoader", "CSafeLoader"})

# Written in pieces, so that this file does not hold what it looks for.
REGISTRY_HOSTS: Final = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("pypi", "python", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("archive", "ubuntu", "com"),
    )
)
MACHINE_PATHS: Final = tuple(
    "/" + "/".join(parts)
    for parts in (
        ("work", "main"),
        ("work", "shared"),
        ("work", "."),
        ("opt", "wheels"),
        ("opt", "pypi"),
        ("root", ".pyenv"),
        ("root", ".cache"),
        ("etc", "xdg", "pip"),
    )
)


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, whether it is a package's `__init__`, its text's lines and its tree."""

    name: str
    path: Path
    is_package: bool
    lines: int
    tree: ast.Module

    @property
    def top(self) -> str:
        """Return the top-level package."""
        return self.name.partition(".")[0]

    @property
    def rules(self) -> str:
        """Return the entry of MAY_IMPORT that holds here."""
        return "gym_bus.cli" if f"{self.name}.".startswith("gym_bus.cli.") else self.top

    def at(self, node: ast.AST) -> str:
        """Return `path:line`, as editors want it."""
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


@cache
def files() -> tuple[Path, ...]:
    """Return every file of the repository that is tracked, or would be if it were added now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:  # an unpacked source distribution: it holds nothing else
        return tuple(path for path in sorted(ROOT.rglob("*")) if path.is_file() and ".venv" not in path.parts)
    return tuple(path for name in sorted(set(listed.stdout.split("\0"))) if name and (path := ROOT / name).is_file())


@cache
def modules() -> tuple[Module, ...]:
    """Return every Python file of the packages and the tests, parsed."""
    found: list[Module] = []
    for path in files():
        parts = path.relative_to(ROOT).with_suffix("").parts
        if path.suffix != ".py" or parts[0] not in OURS:
            continue
        is_package = parts[-1] == "__init__"
        text = path.read_text(encoding="utf-8")
        name = ".".join(parts[:-1] if is_package else parts)
        found.append(Module(name, path, is_package, text.count("\n"), ast.parse(text, str(path))))
    return tuple(found)


def shipped() -> tuple[Module, ...]:
    """Return the modules of the packages, the tests excepted."""
    return tuple(module for module in modules() if module.top != "tests")


def imports(module: Module, tree: ast.AST, *, into_functions: bool) -> Iterator[tuple[ast.AST, str, tuple[str, ...]]]:
    """Yield (node, module's dotted name, names taken from it) of each import; relative ones are made absolute."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node, alias.name, ()) for alias in names)
            case ast.ImportFrom(module=origin, names=names, level=level):
                package = module.name.split(".")[: None if module.is_package else -1]
                base = package[: len(package) - level + 1] if level else []
                yield node, ".".join([*base, *([origin] if origin else [])]), tuple(alias.name for alias in names)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if dotted(function) in {
                "importlib.import_module",
                "import_module",
                "__import__",
            }:
                yield node, name, ()
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if not into_functions:
                continue
            case _:
                pass
        yield from imports(module, node, into_functions=into_functions)


def dotted(node: ast.AST) -> str:
    """Return `a.b.c` for a chain of attributes, or an empty string."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr) if owner := dotted(value):
            return f"{owner}.{attr}"
        case _:
            return ""


def words(name: str) -> set[str]:
    """Return the lower-case words of a CamelCase or snake_case name, plurals in the singular."""
    return {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def forbidden_import(module: Module, target: str) -> bool:
    """Tell whether the import direction forbids `module` to import `target`."""
    top = target.partition(".")[0]
    if top == module.top and not (module.rules == "gym_bus" and f"{target}.".startswith("gym_bus.cli.")):
        return False
    if top in OURS:
        return top not in MAY_IMPORT[module.rules]
    return module.top == "schemas" and top not in SCHEMAS_MAY_USE


def test_imports_go_one_way() -> None:
    """Each package imports only what docs/architecture.md lets it, in functions and for type checkers too."""
    wrong = [
        f"{module.at(node)}: {module.rules} may not import {target}"
        for module in shipped()
        for node, origin, names in imports(module, module.tree, into_functions=True)
        # `from gym_bus import cli` names a module too
        for target in {origin, *(f"{origin}.{name}" for name in names if f"{origin}.{name}" == "gym_bus.cli")}
        if forbidden_import(module, target)
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_make_no_circle() -> None:
    """No module imports, by way of others, itself; imports inside functions are not counted."""
    names = {module.name for module in shipped()}
    graph: dict[str, set[str]] = {}
    for module in shipped():
        targets = graph.setdefault(module.name, set())
        for _, origin, taken in imports(module, module.tree, into_functions=False):
            inner = {f"{origin}.{name}" for name in taken} & names
            # `from package import module` needs that module, and of the package only what is no module of its own
            targets |= inner if taken and len(inner) == len(set(taken)) else inner | ({origin} & names)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("circle: " + " ← ".join(error.args[1]))


def test_packages_lie_beside_gym_bus() -> None:
    """Every top-level package is found in this repository, typed, and is not some other project's of the same name."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None, f"{name} cannot be imported: run `make test`, or pip install -e ."
        assert list(spec.submodule_search_locations or ()) == [str(ROOT / name)], f"{name} is a foreign package"
        assert (ROOT / name / "__init__.py").is_file(), f"{name}/__init__.py is missing"
        assert (ROOT / name / "py.typed").is_file(), f"{name}/py.typed is missing"


def export_order(name: str) -> tuple[int, list[tuple[bool, int, str]]]:
    """Return the sort key of `__all__`, ruff's: CONSTANTS, then Classes, then the rest; numbers by value."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    pieces = [piece for piece in re.split(r"(\d+)", name) if piece]
    return kind, [(not piece.isdigit(), int(piece) if piece.isdigit() else 0, piece) for piece in pieces]


def test_exports_are_sorted() -> None:
    """`__all__` of every package is a sorted literal without repetitions."""
    wrong: list[str] = []
    for module in shipped():
        for node in module.tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if target is None or dotted(target) != "__all__" or not module.is_package:
                continue
            assert isinstance(node, ast.Assign | ast.AnnAssign), f"{module.at(node)}: __all__ is not assigned"
            assert node.value is not None
            names = list(ast.literal_eval(node.value))
            if names != sorted(set(names), key=export_order):
                wrong.append(f"{module.at(node)}: __all__ should be {sorted(set(names), key=export_order)}")
    assert not wrong, "\n".join(wrong)


def test_names_say_what_things_are() -> None:
    """No class, module or function is a Manager, Helper, Util, Common or Misc, nor told apart only by being newer."""
    wrong: list[str] = []
    for module in shipped():
        last = module.name.rpartition(".")[2]
        if words(last) & VAGUE_WORDS or STALE_NAME.search(last):
            wrong.append(f"{module.at(module.tree)}: module {last}")
        for node in ast.walk(module.tree):
            match node:
                case ast.ClassDef(name=name) if words(name) & VAGUE_WORDS or STALE_NAME.search(name):
                    wrong.append(f"{module.at(node)}: class {name}")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if STALE_NAME.search(name):
                    wrong.append(f"{module.at(node)}: function {name}")
                case _:
                    pass
    assert not wrong, "\n".join(wrong)


def is_unsafe_yaml_load(call: ast.Call) -> bool:
    """Tell whether the call is `yaml.load` or `load_all` with a loader that can build any object."""
    if dotted(call.func) not in {"yaml.load", "yaml.load_all"}:
        return False
    loaders = [keyword.value for keyword in call.keywords if keyword.arg == "Loader"] or call.args[1:2]
    return not any(dotted(loader).rpartition(".")[2] in SAFE_LOADERS for loader in loaders)


def test_nothing_runs_what_it_reads() -> None:
    """Outside the tests nothing evaluates text, unpickles, or loads YAML that can build any object."""
    wrong: list[str] = []
    for module in shipped():
        for node, origin, names in imports(module, module.tree, into_functions=True):
            if origin.partition(".")[0] in BANNED_MODULES:
                wrong.append(f"{module.at(node)}: imports {origin}")
            wrong += [f"{module.at(node)}: import yaml, not its {name}" for name in names if origin == "yaml"]
        wrong += [
            f"{module.at(node)}: calls {dotted(node.func)}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and (dotted(node.func) in BANNED_CALLS or is_unsafe_yaml_load(node))
        ]
    assert not wrong, "\n".join(wrong)


def mirror_hosts() -> set[str]:
    """Return the hosts that this machine's pip is configured to fetch from; loopback and bare names are nobody's."""
    shown = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    urls = re.findall(r"\w+://[^\s'\"]+", shown.stdout)
    hosts = {urlsplit(url).hostname or "" for url in urls}
    return {host for host in hosts if "." in host and not host.startswith("127.")}


def test_files_name_no_registry_and_no_machine() -> None:
    """No file names a package registry's host, this machine's mirror, or a path of the machine it was written on."""
    secrets = {*REGISTRY_HOSTS, *MACHINE_PATHS, *mirror_hosts()}
    if len(ROOT.parts) > 2:
        secrets.add(str(ROOT))
    pattern = re.compile(r"(?<![\w-])(" + "|".join(sorted(map(re.escape, secrets))) + ")", re.IGNORECASE)
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if (found := pattern.search(line))
    ]
    assert not wrong, "\n".join(wrong)


def test_pins_carry_hashes_and_no_address() -> None:
    """Every pin of requirements/ is one exact version with its hashes; no line names an index or a file."""
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text, f"{path.name} names an address"
        for pin in re.sub(r"\\\n", " ", text).splitlines():
            if pin and not pin.startswith("#"):
                assert re.match(r"[a-z0-9-]+==[\w.+!]+( ; .*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*$", pin), pin[:80]


def test_prints_what_is_long(capsys: pytest.CaptureFixture[str]) -> None:
    """Functions over 70 lines and modules over 500 are printed, for a person to decide."""
    long = [f"{module.at(module.tree)}: {module.lines} lines" for module in modules() if module.lines > MODULE_LINES]
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    long.append(f"{module.at(node)}: {node.name} has {lines} lines")
    if long:
        with capsys.disabled():
            print("\nlong, and perhaps rightly so:", *long, sep="\n  ")
