#!/usr/bin/env python3
"""Fails on an include against the arrows of the rooms, and on words that a room must never contain.

The arrows are read from the `flashmask_room(name ... DEPENDS ...)` calls in src/*/CMakeLists.txt, so the build and this
check cannot disagree. Usage: check_layers.py [ROOT]; exit code 1 and one line per finding.
"""
import pathlib
import re
import sys

SOURCES = {".hpp", ".cpp", ".cu", ".cuh", ".h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)

# (paths that the rule covers, what must not be there, why)
FORBIDDEN = [
    (lambda p: p.startswith("include/"), re.compile(r'#\s*include\s*<(cuda|nccl|torch|c10|ATen|nlohmann|fmt|CLI)'),
     "public headers include no CUDA, NCCL, torch or third-party header"),
    (lambda p: p.startswith("src/") and not p.startswith("src/format/"), re.compile(r'#\s*include\s*<(nlohmann|CLI)'),
     "nlohmann-json belongs to src/format, app and bench; CLI11 to app"),
    (lambda p: p.startswith("src/") and not p.startswith("src/sm90/ptx/"),
     re.compile(r'\b(asm|__asm__)(\s+volatile)?\s*\('), "asm stands only in src/sm90/ptx"),
    (lambda p: p.startswith("src/sm90/layout/"), re.compile(r'\bthreadIdx\b'), "layout arithmetic knows no threads"),
    (lambda p: p.startswith(("src/balance/", "src/mask/", "src/tile/", "src/comm/")), re.compile(r'#\s*include\s*<cuda'),
     "this room contains no CUDA"),
    (lambda p: p.endswith(".hpp"), re.compile(r'^\s*using\s+namespace\b', re.M), "no `using namespace` in a header"),
    (lambda p: p.startswith("src/"),
     re.compile(r'(?<![\w:.>])(std::)?(exit|abort)\s*\(|std::c(out|err)\b|(?<![\w])f?printf\s*\('),
     "the library never prints and never ends the process"),
]


def strip_comments(text):
    return re.sub(r'//[^\n]*|/\*.*?\*/', '', text, flags=re.S)


def read_rooms(root):
    rooms = {}
    for cmake in sorted((root / "src").glob("*/CMakeLists.txt")):
        text = re.sub(r'#[^\n]*', '', cmake.read_text())
        for call in re.finditer(r'flashmask_room\(\s*(\w+)([^)]*)\)', text):
            words = call.group(2).split()
            depends = []
            if "DEPENDS" in words:
                for word in words[words.index("DEPENDS") + 1:]:
                    if word.isupper():
                        break
                    depends.append(word)
            rooms[call.group(1)] = set(depends)
    return rooms


def reachable(rooms, room):
    seen, todo = {room, "core"}, [room]
    while todo:
        for dep in rooms.get(todo.pop(), ()):
            if dep not in seen:
                seen.add(dep)
                todo.append(dep)
    return seen


def check(root):
    rooms = read_rooms(root)
    findings = [f"src/{room}/CMakeLists.txt: depends on unknown room '{dep}'"
                for room, depends in rooms.items() for dep in sorted(depends - rooms.keys())]
    files = [p for top in ("include", "src", "app") for p in sorted((root / top).rglob("*")) if p.suffix in SOURCES]
    for path in files:
        name = path.relative_to(root).as_posix()
        text = strip_comments(path.read_text())
        if name.startswith("src/") and name.count("/") > 1:
            room = name.split("/")[1]
            allowed = reachable(rooms, room)
            for include in INCLUDE.findall(text):
                target = include.split("/")[0]
                if target in rooms and target not in allowed:
                    findings.append(f"{name}: includes {include}, but room {room} may only use {sorted(allowed)}")
        for covers, pattern, why in FORBIDDEN:
            hit = covers(name) and pattern.search(text)
            if hit:
                findings.append(f"{name}: '{hit.group(0).strip()}': {why}")
    return files, rooms, findings


def main(root):
    files, rooms, findings = check(root)
    for finding in findings:
        print(finding)
    print(f"check_layers: {len(files)} files, {len(rooms)} rooms, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent))
