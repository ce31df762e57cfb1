#!/usr/bin/env python3
"""Keeps tests/device/record.json: what the kernels in this tree did when they last ran on a real GPU.

CI has no GPU. So whoever changes a kernel runs the device tests and benchmarks on a GPU machine and lands the record with
the change; CI runs `device_record.py --check`, which fails when the kernel sources are not the recorded ones.

  device_record.py --check [--root DIR]      compare the tree with the record (no GPU needed)
  device_record.py --hash [--root DIR]       print the hash over every source that ends up in a kernel
  device_record.py --run --binaries DIR [--output FILE] [--previous FILE] [--only REGEX] [--resume]
                   [--at-once N] [--timeout SECONDS] [--budget SECONDS]
                                             run every device_*_test in DIR and the benchmarks of the list below, write
                                             the record after each. A record of the same sources and GPU is added to: one
                                             run may be cut into several with --only, and --resume leaves out what the
                                             record already has. A call ends within its budget; what it had no time for
                                             is named and not recorded. Exit code 1: a test failed, 3: something is left.

DIR may have been built elsewhere: it holds the test programs, the benchmarks, flashmask and libflashmask.so; what is not
there is left out.

The hash covers each .cu file under src/sm90, what it includes from this tree (in turn), and the compile options of the
room; comments and white space do not count.
"""
import argparse
import concurrent.futures
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

RECORD = pathlib.Path("tests/device/record.json")
FORMAT = {"format": "flashmask.device_record", "version": 1}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)
LONGEST = 131072
SHORTEST_RUN = 15  # seconds: with less left of the budget nothing is started


def table(label, rows, heads, *more):
    """One length of the benchmark's twelve masks, forward and backward, with the batch of the published table."""
    batch = max(1, 32768 // rows) if ":" not in heads else max(1, 16384 // rows)
    return (f"{label} {rows}", "flashmask", ["bench", "--backend", "sm90", "--twelve", "--rows", str(rows), "--batch", str(batch),
                                             "--heads", heads, *more, "--json", "-"])


def peers(label, rows, *more):
    """cuDNN beside the kernels, on the two masks that it has."""
    return (f"peers {label} {rows}", "peers_gpu.py", ["--rows", str(rows), *more, "--mask", "full,causal", "--peers", "cudnn"])


def lengths(first, last):
    return [first << i for i in range(20) if first << i <= last]


# (label, program, arguments): a .py file of bench/, or a program of the binaries folder that is left out if not there.
# Kernels and their peers run in one process, so that a figure and its peer are of one card.
BENCHMARKS = [
    ("tile_map", "sm90_tile_map", []),
    ("forward with the map built in every call", "sm90_forward", ["--n", "8192,32768"]),
    *[table("table d128", n, "16" if n <= 65536 else "8") for n in lengths(4096, LONGEST)],
    *[table("table d64", n, "32" if n <= 65536 else "16", "--head-dim", "64") for n in lengths(4096, LONGEST)],
    *[table("table 64:8", n, "64:8") for n in (8192, 32768)],
    *[table("table 64:1", n, "64:1") for n in (8192, 32768)],
    ("backward deterministic", "sm90_backward",
     ["--n", "8192", "--mask", "full,causal,causal_document", "--deterministic", "1"]),
    peers("d128", 8192),
    peers("d128", 32768),
    peers("d64", 8192, "--head-dim", "64", "--heads", "32"),
    peers("64:8", 8192, "--batch", "2", "--heads", "64:8"),
    peers("64:1", 8192, "--batch", "2", "--heads", "64:1"),
    ("flex d128 8192", "peers_gpu.py", ["--rows", "8192", "--mask", "full,causal,causal_document", "--peers", "flex,cudnn"]),
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


def read_record(path):
    """The record in a file; throws ValueError with a sentence if it is none."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(record, dict) or {k: record.get(k) for k in FORMAT} != FORMAT:
        raise ValueError(f"{path} is not a {FORMAT['format']} of version {FORMAT['version']}")
    missing = [key for key in ("kernel_hash", "gpu", "sources", "tests", "benchmarks") if key not in record]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}: it was cut or edited by hand")
    return record


def check(root):
    """Sentences about what is wrong, none if the record stands for this tree."""
    sources = hashes(root)
    if not sources:
        return [f"{root} has no kernel source under src/sm90: it is not the root of this project"]
    path = root / RECORD
    if not path.is_file():
        return [f"{RECORD} is missing: run tools/device_record.py --run on a machine with a Hopper GPU and land its output"]
    try:
        record = read_record(path)
    except ValueError as error:
        return [str(error)]
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
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader"], capture_output=True,
                              text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"device_record: no GPU here: {error}")
    parts = [part.strip() for part in (done.stdout.splitlines() or [""])[0].split(",")]
    if len(parts) != len(fields):
        sys.exit(f"device_record: nvidia-smi answered {done.stdout.strip()!r} when asked for {', '.join(fields)}")
    return {"name": parts[0], "driver": parts[1]}


def run_tests(program, timeout):
    """One entry a GoogleTest case: name, outcome, seconds and the worst_* properties that it recorded."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        try:
            done = subprocess.run([program, f"--gtest_output=json:{report}", "--gtest_brief=1"], timeout=timeout)
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = f"timeout after {timeout:.0f} s"
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
        text, code = (error.stdout or b"").decode(), f"timeout after {timeout:.0f} s"
    figures = [{"program": label, **figure} for figure in figures_in(text)]
    if code != 0:
        figures.append({"program": label, "error": f"ended with {code}"})
    return figures


def merged(old, new, key):
    again = {entry[key] for entry in new}
    return [entry for entry in old if entry[key] not in again] + new


def command_of(root, binaries, program, arguments):
    """The command line of a benchmark, None if the program was not brought along."""
    if not program.endswith(".py"):
        return [str(binaries / program), *arguments] if (binaries / program).is_file() else None
    if not (binaries / "libflashmask.so").is_file():
        return None
    return [sys.executable, str(root / "bench" / program), "--build", str(binaries), *arguments]


def jobs(root, binaries, only):
    """(kind, name, how to run it within so many seconds) of everything that is asked for and there."""
    wanted = re.compile(only)
    found = [("tests", program.name, lambda seconds, program=program: run_tests(program, seconds))
             for program in sorted(binaries.glob("device_*_test")) if wanted.search(program.name)]
    for label, program, arguments in BENCHMARKS:
        command = command_of(root, binaries, program, arguments)
        if command and wanted.search(label):
            found.append(("benchmarks", label, lambda seconds, c=command, l=label: run_bench(c, l, seconds)))
    return found


def is_done(record, kind, name):
    entries = [entry for entry in record[kind] if entry["program"] == name]
    return bool(entries) and not any("error" in entry or entry.get("left_out") or entry.get("outcome", "passed") != "passed"
                                     for entry in entries)


def run_jobs(record, todo, timeout, budget, save, at_once):
    """Runs what fits into the budget, tests `at_once` at a time, benchmarks alone; returns the names of the rest."""
    deadline, left = time.monotonic() + budget, []

    def attempt(job):
        remaining = deadline - time.monotonic()
        entries = job[2](min(timeout, remaining)) if remaining >= SHORTEST_RUN else None
        cut = remaining < timeout and entries is not None and "timeout" in json.dumps(entries[-1])
        return None if cut else entries
    for kind, workers in (("tests", at_once), ("benchmarks", 1)):
        chosen = [job for job in todo if job[0] == kind]
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for (_, name, _), entries in zip(chosen, pool.map(attempt, chosen)):
                if entries is None:
                    left.append(name)
                    continue
                record[kind] = merged(record[kind], entries, "program")
                save()  # what has run stays, should the machine be taken away
    return left


def run(root, o):
    sources, gpu, binaries = hashes(root), query_gpu(), o.binaries.resolve()
    output = o.output or root / RECORD
    record = {**FORMAT, "kernel_hash": total_hash(sources), "gpu": gpu, "date": datetime.date.today().isoformat(),
              "sources": sources, "tests": [], "benchmarks": []}
    previous = o.previous or (output if output.is_file() else root / RECORD)
    if previous.is_file():
        try:
            old = read_record(previous)
        except ValueError as error:
            sys.exit(f"device_record: {error}")
        if old.get("kernel_hash") == record["kernel_hash"] and old.get("gpu") == gpu:
            record["tests"], record["benchmarks"] = old["tests"], old["benchmarks"]

    def save():
        output.write_text(json.dumps(record, indent=1) + "\n")
    found = jobs(root, binaries, o.only)
    if not found:  # and the record that is there stays
        sys.exit(f"device_record: --binaries {o.binaries} has no device_*_test and no benchmark that matches --only {o.only!r}")
    output.parent.mkdir(parents=True, exist_ok=True)
    todo = [job for job in found if not (o.resume and is_done(record, *job[:2]))]
    left = run_jobs(record, todo, o.timeout, o.budget, save, o.at_once)
    bad = [t for t in record["tests"] if t["outcome"] != "passed"]
    print(f"{len(record['tests'])} tests, {len(bad)} not passed, {len(record['benchmarks'])} figures -> {output}")
    for test in bad:
        print(f"device_record: {test['program']} {test['name']}: {test['outcome']}")
    if left:
        print(f"device_record: no time was left for {', '.join(left)}; call again with --resume")
    return 1 if bad else 3 if left else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("check", "hash", "run"):
        mode.add_argument("--" + name, action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--binaries", type=pathlib.Path, help="folder with the built device_*_test and benchmarks")
    parser.add_argument("--output", type=pathlib.Path, help=f"default: {RECORD}")
    parser.add_argument("--previous", type=pathlib.Path, help=f"record to add to; default: the output, else {RECORD}")
    parser.add_argument("--resume", action="store_true", help="leave out what the record already has")
    parser.add_argument("--only", default="", help="regular expression over test programs and benchmark labels")
    parser.add_argument("--timeout", type=float, default=280, help="seconds for one program")
    parser.add_argument("--at-once", type=int, default=1, choices=range(1, 17), metavar="N",
                        help="test programs that share the GPU; benchmarks run alone")
    parser.add_argument("--budget", type=float, default=570, help="seconds for the whole call")
    options = parser.parse_args()
    if not options.run:
        for name in ("binaries", "output", "previous", "resume", "only"):
            if getattr(options, name):
                parser.error(f"--{name} belongs to --run")
    try:
        re.compile(options.only)
    except re.error as error:
        parser.error(f"--only {options.only!r} is no regular expression: {error}")
    root = options.root.resolve()
    if options.hash:
        sources = hashes(root)
        if not sources:
            parser.error(f"--root {root} has no kernel source under src/sm90")
        print(total_hash(sources))
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
    if not options.binaries.is_dir():
        parser.error(f"--binaries {options.binaries} is no folder")
    if options.previous and not options.previous.is_file():
        parser.error(f"--previous {options.previous} is no file")
    return run(root, options)


if __name__ == "__main__":
    sys.exit(main())
