"""bench/peers_gpu.py without a GPU: its masks are ours, its structs are those of flashmask.h, and what is missing is said.
Usage: peers_gpu_test.py SOURCE_FOLDER PATH_OF_FLASHMASK"""
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMMAND = pathlib.Path(sys.argv.pop()).resolve()
ROOT = pathlib.Path(sys.argv.pop()).resolve()
sys.path.insert(0, str(ROOT / "bench"))
sys.dont_write_bytecode = True
import peers_gpu  # noqa: E402
import sm90_library  # noqa: E402

ROWS = 250


def dense(name):
    call = [COMMAND, "mask", "--mask", name, "--workload", f"pack:{ROWS}:0", "--export", "dense"]
    cells = json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE).stdout)
    while len(cells) == 1:  # one batch row, one head
        cells = cells[0]
    return cells


class Masks(unittest.TestCase):
    def test_the_mask_mod_of_all_twelve_masks_shows_the_cells_of_the_dense_mask(self):
        for name in peers_gpu.MASKS:
            mask = peers_gpu.load_mask(COMMAND, name, ROWS)
            mod = peers_gpu.mask_mod_of([mask[v] for v in sm90_library.VECTORS])
            cells = [[int(mod(0, 0, row, column)) for column in range(ROWS)] for row in range(ROWS)]
            self.assertEqual(cells, dense(name), name)
            self.assertEqual(sum(map(sum, cells)), mask["visible_cells"], name)

    def test_torch_evaluates_the_mask_mod_alike(self):
        try:
            import torch
            from torch.nn.attention.flex_attention import create_mask
        except ImportError:
            self.skipTest("no torch here")
        for name in peers_gpu.MASKS:
            mask = peers_gpu.load_mask(COMMAND, name, ROWS)
            vectors = [torch.tensor(mask[v], dtype=torch.int32) for v in sm90_library.VECTORS]
            made = create_mask(peers_gpu.mask_mod_of(vectors), 1, 1, ROWS, ROWS, device="cpu")
            self.assertEqual(made[0, 0].int().tolist(), dense(name), name)


class Structs(unittest.TestCase):
    def test_they_are_laid_out_as_in_the_header(self):
        known = {"flashmask_attention_shape": sm90_library.Shape, "flashmask_mask_shape": sm90_library.MaskShape,
                 "flashmask_tensor": sm90_library.Tensor, "flashmask_sm90_forward_arguments": sm90_library.ForwardCall,
                 "flashmask_sm90_backward_arguments": sm90_library.BackwardCall}
        lines = []
        for name, struct in known.items():
            lines += [f'printf("%zu\\n", sizeof({name}));']
            lines += [f'printf("%zu\\n", offsetof({name}, {field}));' for field, _ in struct._fields_]
        source = ('#include <stddef.h>\n#include <stdio.h>\n#include <flashmask/flashmask.h>\n'
                  "int main(void) {" + "".join(lines) + " return 0; }\n")
        with tempfile.TemporaryDirectory() as folder:
            path, program = pathlib.Path(folder) / "layout.c", pathlib.Path(folder) / "layout"
            path.write_text(source)
            subprocess.run(["cc", "-I", ROOT / "include", "-o", program, path], check=True)
            printed = [int(line) for line in subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout.split()]
        expected = []
        for struct in known.values():
            expected.append(ctypes.sizeof(struct))
            expected += [getattr(struct, field).offset for field, _ in struct._fields_]
        self.assertEqual(printed, expected)


class Refusals(unittest.TestCase):
    def refused(self, *arguments):
        done = subprocess.run([sys.executable, ROOT / "bench/peers_gpu.py", *arguments], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        return done.stderr

    def test_bad_arguments_and_missing_parts_are_named(self):
        self.assertIn("--mask caussal: known are full, causal", self.refused("--mask", "caussal"))
        self.assertIn("--peers fa2", self.refused("--peers", "fa2"))
        self.assertIn("--passes both", self.refused("--passes", "both"))
        self.assertIn("expected numbers", self.refused("--rows", "8K"))
        self.assertIn("--heads 8:3", self.refused("--heads", "8:3"))
        self.assertIn("--rows 0", self.refused("--rows", "0"))
        self.assertIn("--head-dim 129", self.refused("--head-dim", "129"))
        self.assertIn("--batch -3", self.refused("--batch", "-3"))
        self.assertIn("--seconds nan", self.refused("--seconds", "nan"))
        self.assertIn("--mask names none", self.refused("--mask", ","))
        self.assertIn("its folder does not exist", self.refused("--json", "/nonexistent/x.json"))
        self.assertIn("none of app/flashmask, flashmask is there", self.refused("--build", "/nonexistent"))

    def test_without_torch_or_without_a_gpu_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("flashmask", "libflashmask.so"):
                (pathlib.Path(folder) / name).write_bytes(b"")
            try:
                import torch
                if torch.cuda.is_available():
                    self.skipTest("there is a GPU here")
                expected = "no Hopper GPU"
            except ImportError:
                expected = "has no torch"
            self.assertIn(expected, self.refused("--build", folder))


class Failures(unittest.TestCase):
    def test_a_peer_that_fails_stands_in_the_record_with_its_error(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch here")

        def broken(mask, vectors, tensors):
            raise RuntimeError("no kernel for this\nand a long trace")
        peers_gpu.PEERS["broken"] = (broken, "some form")
        torch.cuda.synchronize = lambda: None
        result = {"forward": {"peers": []}, "backward": {"peers": []}}
        ours = type("Ours", (), {"vectors": None, "shape": None})
        peers_gpu.peer_entry("broken", result, {"name": "full", "rows": 8}, ours, {}, ["forward", "backward"])
        for which in result.values():
            self.assertEqual([peer["error"] for peer in which["peers"]], ["RuntimeError: no kernel for this"])


if __name__ == "__main__":
    unittest.main()
