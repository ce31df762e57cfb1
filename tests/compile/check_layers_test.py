"""tools/check_layers.py must find each planted fault, and nothing in the clean tree it was planted in."""
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
FAULTS = {
    "src/mask/bad.cpp": '#include "tile/map.hpp"\n',
    "src/tile/bad.cpp": "void f() { asm volatile(\"nop\"); }\n",
    "src/tile/bad_json.cpp": "#include <nlohmann/json.hpp>\n",
    "include/flashmask/bad.hpp": "#include <cuda_runtime.h>\n",
    "src/mask/bad.hpp": "using namespace std;\n",
    "src/mask/prints.cpp": '#include <cstdio>\nvoid f() { std::printf("x"); }\n',
}


def run(tree):
    done = subprocess.run([sys.executable, root / "tools/check_layers.py", tree], capture_output=True, text=True)
    return done.returncode, done.stdout


with tempfile.TemporaryDirectory() as name:
    tree = pathlib.Path(name)
    for room, depends in (("core", ""), ("mask", "DEPENDS core"), ("tile", "DEPENDS mask")):
        (tree / "src" / room).mkdir(parents=True)
        (tree / "src" / room / "CMakeLists.txt").write_text(f"flashmask_room({room} SOURCES a.cpp {depends})\n")
    (tree / "include/flashmask").mkdir(parents=True)
    (tree / "app").mkdir()
    (tree / "src/tile/good.cpp").write_text('#include "mask/canonical.hpp"\n#include "core/check.hpp"\n')
    code, out = run(tree)
    assert code == 0, out
    for path, text in FAULTS.items():
        (tree / path).write_text(text)
        code, out = run(tree)
        assert code == 1 and path in out, (path, out)
        (tree / path).unlink()
print(f"{len(FAULTS)} planted faults found")
