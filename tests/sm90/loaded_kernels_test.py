#!/usr/bin/env python3
"""loaded_kernels_test.py BUILD_DIR: no kernel was added that load_kernels() does not know.

Counts the library's kernels (CUB's have no public names) in the logs of ptxas. tests/device/first_launch_test.cu launches every one of these beside a
kernel that polls; a new one has to be loaded by its room's load_kernels(), launched there, and counted here.
"""
import collections
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True
import ptxas_budget  # noqa: E402

LOADED = {"tile_map": 7, "forward_pass": 20, "backward_pass": 25}


def main(build):
    names = [entry[0] for log in build.rglob("*.ptxas") for entry in ptxas_budget.parse(log.read_text())]
    found = collections.Counter(next((room for room in LOADED if room in name), name) for name in names if "flashmask" in name)
    for room in sorted({*LOADED, *found}):
        if found[room] != LOADED.get(room, 0):
            print(f"{room}: {found[room]} kernels, {LOADED.get(room, 0)} are loaded ahead and launched in first_launch_test.cu")
    return 0 if found == LOADED else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
