#!/usr/bin/env python3
"""Keeps tests/device/record.json: what the kernels in this tree did when they last ran on a real GPU.

CI has no GPU. So whoever changes a kernel runs the device tests and benchmarks on a GPU machine and lands the record with
the change; CI runs `device_record.py --check`, which fails when the kernel sources are not the recorded ones.

  device_record.py --check [--root DIR]      compare the tree with the record (no GPU needed)
  device_record.py --hash [--root DIR]       print the hash over every source that ends up in a kernel
  device_record.py --run --binaries DIR [--output FILE] [--only REGEX] [--timeout SECONDS]
                                             run every device_*_test in DIR and the benchmarks of the list below, write
                                             the record. A record of the same sources and GPU is added to, so a long run
                                             may be cut into several with --only.

The hash covers each .cu file under src/sm90, what it includes from this tree (in turn), and the compile options of the
room; comments and white space do not count.
"""
import argparse
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

RECORD = pathlib.Path("tests/device/record.json")
FORMAT = {"format": "flashmask.device_record", "version": 1}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)
# (label, program, arguments): a .py file of bench/, or a program of the binaries folder that is left out if not there.
# Kernels and their peers run in the same call, one after the other, so that a figure and its peer are of one card.
BENCHMARKS = [
    ("tile_map", "sm90_tile_map", []),
    ("forward", "sm90_forward", ["--n", "8192,32768,131072", "--sustained", "1"]),
    ("forward peer", "peer_sdpa.py", ["--n", "8192,32768"]),
    ("forward head_dim 64", "sm90_forward", ["--n", "8192", "--head-dim", "64", "--heads", "32"]),
    ("forward 64:8 heads", "sm90_forward",
     ["--n", "8192,32768", "--heads", "64", "--kv-heads", "8", "--mask", "full,causal,causal_document"]),
    ("backward", "sm90_backward", ["--n", "8192,32768,131072", "--sustained", "1"]),
    ("backward peer", "peer_sdpa_backward.py", ["8192", "32768"]),
    ("backward deterministic", "sm90_backward",
     ["--n", "8192", "--mask", "full,causal,causal_document", "--deterministic", "1"]),
]
NUMBER_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")


def meaning(text):
    """The text without comments and white space; literals stay as they are, a directive keeps its line."""
    text = NUMBER_SEPARATOR.sub("", text).replace("\\\n", " ")
    text = TOKEN.sub(lambda m: m.group(0) if m.group(0)[0] in "\"'" else " ", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    joined = " ".join("\n" + line + "\n" if line.startswith("#") else line for line in lines if line)
    return re.sub(r"\s*\n\s*", "\n", joined).strip()


def kernel_sources(root):
    """Relative paths of every file that ends up in a kernel."""
    todo = sorted((root / "src/sm90").rglob("*.cu"))
    found = set(todo)
    while todo:
        path = todo.pop()
        for name in INCLUDE.findall(path.read_text()):
            for base in (root / "src", root / "include", path.parent):
                included = (base / name).resolve()
                if included.is_file() and included.is_relative_to(root):
                    if included not in found:
                        found.add(included)
                        todo.append(included)
                    break
    if found:
        found |= {p for p in (root / "src/sm90/CMakeLists.txt", root / "cmake/Cuda.cmake") if p.is_file()}
    return sorted(p.relative_to(root).as_posix() for p in found)


def hashes(root):
    def content(name):
        text = (root / name).read_text()
        return " ".join(re.sub(r"#[^\n]*", "", text).split()) if name.endswith((".txt", ".cmake")) else meaning(text)
    return {name: hashlib.sha256(content(name).encode()).hexdigest()[:16] for name in kernel_sources(root)}


def total_hash(sources):
    text = "".join(f"{name} {digest}\n" for name, digest in sorted(sources.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def device_test_names(root):
    files = list((root / "tests/device").glob("*_test.cu")) + list((root / "tests/device").glob("*_test.cpp"))
    return sorted("device_" + f.stem for f in files)


def check(root):
    """Sentences about what is wrong, none if the record stands for this tree."""
    sources = hashes(root)
    if not sources:
        return []
    path = root / RECORD
    if not path.is_file():
        return [f"{RECORD} is missing: run tools/device_record.py --run on a machine with a Hopper GPU and land its output"]
    record = json.loads(path.read_text())
    if {k: record.get(k) for k in FORMAT} != FORMAT:
        return [f"{RECORD} is not a {FORMAT['format']} of version {FORMAT['version']}"]
    findings = []
    recorded = record["sources"]
    for name in sorted(set(sources) | set(recorded)):
        if name not in recorded:
            findings.append(f"{name} ends up in a kernel and was not there when the record was made")
        elif name not in sources:
            findings.append(f"{name} is recorded but no longer ends up in a kernel")
        elif sources[name] != recorded[name]:
            findings.append(f"{name} has changed since the record was made")
    if record["kernel_hash"] != total_hash(recorded):
        findings.append(f"{RECORD}: its hash does not belong to its list of sources; it was edited by hand")
    ran = {test["program"] for test in record["tests"]}
    findings += [f"{name} is not in the record" for name in device_test_names(root) if name not in ran]
    findings += [f"{t['program']} {t['name']}: recorded as {t['outcome']}" for t in record["tests"] if t["outcome"] != "passed"]
    if findings:
        findings.append("run tools/device_record.py --run on a machine with a Hopper GPU and land its record with the change")
    return findings


def query_gpu():
    fields = ["name", "driver_version"]
    done = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader"], capture_output=True,
                          text=True, check=True)
    name, driver = (part.strip() for part in done.stdout.splitlines()[0].split(","))
    return {"name": name, "driver": driver}


def run_tests(program, timeout):
    """One entry a GoogleTest case: name, outcome, seconds and the worst_* properties that it recorded."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        try:
            done = subprocess.run([program, f"--gtest_output=json:{report}", "--gtest_brief=1"], timeout=timeout)
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = f"timeout after {timeout} s"
        if not report.is_file():
            return [{"program": program.name, "name": "all", "outcome": f"ended without a report ({code})"}]
        entries = []
        for suite in json.loads(report.read_text())["testsuites"]:
            for case in suite["testsuite"]:
                entry = {"program": program.name, "name": f"{case['classname']}.{case['name']}", "seconds": float(case["time"].rstrip("s"))}
                entry["outcome"] = "failed" if case.get("failures") else "skipped" if case["result"] == "SKIPPED" else "passed"
                entry["worst"] = {k[len("worst_"):]: float(v) for k, v in case.items() if k.startswith("worst_")}
                entries.append(entry)
        return entries


def figures_in(text):
    """The JSON objects of a program's output: the output as a whole, or one object a line, in a list or not."""
    try:
        whole = json.loads(text)
        return [f for f in (whole if isinstance(whole, list) else [whole]) if isinstance(f, dict)]
    except json.JSONDecodeError:
        pass  # noise between the objects, or cut by the time limit
    found = []
    for line in text.splitlines():
        try:
            figure = json.loads(line.strip().lstrip("[").rstrip(",]").strip())
        except json.JSONDecodeError:
            continue
        if isinstance(figure, dict):
            found.append(figure)
    return found


def run_bench(command, label, timeout):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        text, code = (error.stdout or b"").decode(), f"timeout after {timeout} s"
    figures = [{"program": label, **figure} for figure in figures_in(text)]
    if code != 0:
        figures.append({"program": label, "error": f"ended with {code}"})
    return figures


def merged(old, new, key):
    again = {entry[key] for entry in new}
    return [entry for entry in old if entry[key] not in again] + new


def run(root, binaries, output, only, timeout):
    sources, gpu = hashes(root), query_gpu()
    record = {**FORMAT, "kernel_hash": total_hash(sources), "gpu": gpu, "date": datetime.date.today().isoformat(),
              "sources": sources, "tests": [], "benchmarks": []}
    if output.is_file():
        old = json.loads(output.read_text())
        if old.get("kernel_hash") == record["kernel_hash"] and old.get("gpu") == gpu:
            record["tests"], record["benchmarks"] = old["tests"], old["benchmarks"]

    def save():
        output.write_text(json.dumps(record, indent=1) + "\n")
    wanted = re.compile(only)
    for program in sorted(binaries.glob("device_*_test")):
        if wanted.search(program.name):
            record["tests"] = merged(record["tests"], run_tests(program, timeout), "program")
            save()  # what has run stays, should the machine be taken away
    for label, program, arguments in BENCHMARKS:
        path = root / "bench" / program if program.endswith(".py") else binaries / program
        if path.is_file() and wanted.search(label):
            command = ([sys.executable] if program.endswith(".py") else []) + [str(path), *arguments]
            record["benchmarks"] = merged(record["benchmarks"], run_bench(command, label, timeout), "program")
            save()
    save()
    bad = [t for t in record["tests"] if t["outcome"] != "passed"]
    print(f"{len(record['tests'])} tests, {len(bad)} not passed, {len(record['benchmarks'])} figures -> {output}")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("check", "hash", "run"):
        mode.add_argument("--" + name, action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--binaries", type=pathlib.Path, help="folder with the built device_*_test and benchmarks")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--only", default="", help="regular expression over test programs and benchmark labels")
    parser.add_argument("--timeout", type=int, default=280, help="seconds for one program")
    options = parser.parse_args()
    root = options.root.resolve()
    if options.hash:
        print(total_hash(hashes(root)))
        return 0
    if options.check:
        findings = check(root)
        for finding in findings:
            print(f"device_record: {finding}")
        if not findings:
            print(f"device_record: {len(hashes(root))} kernel sources are the recorded ones")
        return 1 if findings else 0
    if options.binaries is None:
        parser.error("--run needs --binaries")
    return run(root, options.binaries.resolve(), options.output or root / RECORD, options.only, options.timeout)


if __name__ == "__main__":
    sys.exit(main())
