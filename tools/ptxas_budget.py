#!/usr/bin/env python3
"""Keeps what ptxas says about the kernels within tools/budget.json.

    ptxas_budget.py --log COMPILER ARGS...   run a compilation and keep its output beside the object as OBJECT.ptxas
    ptxas_budget.py --check BUILD_DIR        check every OBJECT.ptxas under BUILD_DIR; exit 1 with one line a finding
    ptxas_budget.py --table BUILD_DIR        print kernel, registers, spills

A spill, a C75xx remark (wgmma serialised, setmaxnreg ignored: ptxas prints those as mere information) or more registers
than the budget allows is a finding. A kernel no entry of the budget matches is one, too.
"""
import json
import pathlib
import re
import subprocess
import sys

BUDGET = pathlib.Path(__file__).resolve().parent / "budget.json"
COMPILING = re.compile(r"Compiling entry function '(\w+)' for 'sm_90a'")
REGISTERS = re.compile(r"Used (\d+) registers")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REMARK = re.compile(r"\((C75\d\d)\)")


def log(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if "-o" in command:
        target = pathlib.Path(command[command.index("-o") + 1])
        if any(word.endswith(".cu") for word in command):
            target.with_name(target.name + ".ptxas").write_text(result.stdout)
    shown = [line for line in result.stdout.splitlines() if not line.startswith("ptxas info") and "bytes stack" not in line]
    if shown:
        print("\n".join(shown))
    return result.returncode


def parse(text):
    """Yields (kernel, registers, stack, spill bytes, remarks) of one log."""
    kernel, stack, spill, remarks = None, 0, 0, []
    for line in text.splitlines():
        remarks += REMARK.findall(line)
        if found := COMPILING.search(line):
            kernel, stack, spill = found.group(1), 0, 0
        elif found := SPILLS.search(line):
            stack, spill = int(found.group(1)), int(found.group(2)) + int(found.group(3))
        elif (found := REGISTERS.search(line)) and kernel:
            yield kernel, int(found.group(1)), stack, spill, remarks
            kernel, remarks = None, []
    if remarks:
        yield "(no kernel)", 0, 0, 0, remarks


def findings(entries, budget):
    for kernel, registers, stack, spill, remarks in entries:
        limit = next((value for pattern, value in budget.items() if re.search(pattern, kernel)), None)
        if spill or stack:
            yield f"{kernel}: {stack} bytes of stack, {spill} bytes of spills"
        for remark in remarks:
            yield f"{kernel}: ptxas remark {remark}"
        if limit is None:
            yield f"{kernel}: no entry of {BUDGET.name} matches; add one with its register limit"
        elif registers > limit:
            yield f"{kernel}: {registers} registers, the budget allows {limit}"


def main(arguments):
    if arguments[:1] == ["--log"]:
        return log(arguments[1:])
    if len(arguments) != 2 or arguments[0] not in ("--check", "--table"):
        print(__doc__)
        return 2
    logs = sorted(pathlib.Path(arguments[1]).rglob("*.ptxas"))
    entries = [entry for path in logs for entry in parse(path.read_text())]
    if arguments[0] == "--table":
        for kernel, registers, stack, spill, remarks in entries:
            print(f"{registers:4d} registers {stack:4d} stack {spill:4d} spill {' '.join(remarks):8s} {kernel}")
        return 0
    if not entries:
        print(f"no ptxas log under {arguments[1]}: build the CUDA targets first")
        return 1
    found = list(findings(entries, json.loads(BUDGET.read_text())))
    print("\n".join(found + [f"ptxas_budget: {len(entries)} kernels, {len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
