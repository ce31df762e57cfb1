"""The sm90 part of the C ABI from Python: ctypes mirrors of its structs, and its kernels on tensors of torch.

What bench/peers_gpu.py times; tests/tools/peers_gpu_test.py compares the structs with flashmask.h.
"""
import ctypes

VECTORS = ("lts", "lte", "uts", "ute")


class Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "rows", "columns", "query_heads", "kv_heads", "head_dim")]


class MaskShape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "heads", "rows", "columns")]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("strides", ctypes.c_int64 * 4)]


def call_struct(name, tensors_in, tensors_out, tail):
    """A ctypes mirror of one of the sm90 argument structs of flashmask.h."""
    fields = [("struct_size", ctypes.c_size_t), ("shape", Shape), ("mask", ctypes.c_void_p), ("dtype", ctypes.c_int32)]
    fields += [(t, Tensor) for t in tensors_in] + [("lse", ctypes.c_void_p)] + [(t, Tensor) for t in tensors_out]
    fields += [("scale", ctypes.c_float), ("workspace", ctypes.c_void_p), ("stream", ctypes.c_void_p), *tail]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


ForwardCall = call_struct("ForwardCall", ("q", "k", "v", "out"), (), [("grid", ctypes.c_int32)])
BackwardCall = call_struct("BackwardCall", ("q", "k", "v", "out", "dout"), ("dq", "dk", "dv"),
                           [("deterministic", ctypes.c_int32), ("workspace_bytes", ctypes.c_size_t)])


class Library:
    """libflashmask.so; a failed call raises with the library's own text."""

    def __init__(self, path):
        self.c = ctypes.CDLL(str(path))
        self.c.flashmask_last_error.restype = ctypes.c_char_p
        self.c.flashmask_version.restype = ctypes.c_char_p
        self.c.flashmask_mask_destroy.argtypes = [ctypes.c_void_p]
        self.c.flashmask_device_mask_destroy.argtypes = [ctypes.c_void_p]

    def __getattr__(self, name):
        function = getattr(self.c, "flashmask_" + name)

        def call(*arguments):
            if function(*arguments) != 0:
                raise RuntimeError(f"flashmask_{name}: {self.c.flashmask_last_error().decode()}")
        return call


def view_of(tensor):
    return Tensor(tensor.data_ptr(), (ctypes.c_int64 * 4)(*tensor.stride()))


class Ours:
    """The kernels of the library on BSHD tensors of torch, through the C ABI."""

    def __init__(self, library, mask, tensors):
        import torch
        self.library, self.mask, self.tensors = library, mask, tensors
        batch, rows, heads, dim = tensors["q"].shape
        columns, kv_heads = tensors["k"].shape[1:3]
        self.shape, self.mask_shape = Shape(batch, rows, columns, heads, kv_heads, dim), MaskShape(1, 1, rows, columns)
        self.vectors = [torch.tensor(mask[v], dtype=torch.int32, device="cuda") for v in VECTORS]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.tiles, self.maps = self.make_maps(stream)
        size = ctypes.c_size_t()
        library.sm90_forward_workspace_bytes(ctypes.byref(size))
        self.workspace = torch.empty(size.value, dtype=torch.uint8, device="cuda")
        library.sm90_prepare_workspace(ctypes.c_void_p(self.workspace.data_ptr()), stream)
        library.sm90_backward_workspace_bytes(self.shape, self.mask_shape, 0, ctypes.byref(size))
        self.backward_workspace = torch.empty(size.value, dtype=torch.uint8, device="cuda")
        self.calls = self.describe(stream)

    def make_maps(self, stream):
        """The device masks of both passes, for the tiles that the library names."""
        host, block = ctypes.c_void_p(), (ctypes.c_int32 * 2)()
        arrays = [(ctypes.c_int32 * len(self.mask[v]))(*self.mask[v]) for v in VECTORS]
        self.library.mask_create(self.mask_shape, *arrays, ctypes.byref(host))
        m, n = ctypes.byref(block, 0), ctypes.byref(block, 4)
        tiles, maps = {}, {}
        for name in ("forward", "backward"):
            if name == "forward":
                self.library.sm90_choose_forward_tile(host, self.shape, m, n)
            else:
                self.library.sm90_choose_backward_tile(host, self.shape, 0, m, n)
            maps[name], tiles[name] = ctypes.c_void_p(), list(block)
            self.library.device_mask_create_for(self.mask_shape, *block, self.shape, ctypes.byref(maps[name]))
            self.library.device_mask_refill(maps[name], *(ctypes.c_void_p(v.data_ptr()) for v in self.vectors), stream)
        self.library.c.flashmask_mask_destroy(host)
        return tiles, maps

    def describe(self, stream):
        calls = {}
        for name, struct, workspace in (("forward", ForwardCall, self.workspace), ("backward", BackwardCall, self.backward_workspace)):
            call = struct(struct_size=ctypes.sizeof(struct), shape=self.shape, mask=self.maps[name].value, dtype=2,
                          lse=self.tensors["lse"].data_ptr(), workspace=workspace.data_ptr(), stream=stream.value)
            for field, kind in struct._fields_:
                if kind is Tensor:
                    setattr(call, field, view_of(self.tensors[field]))
            calls[name] = call
        calls["backward"].workspace_bytes = self.backward_workspace.numel()
        return calls

    def forward(self):
        self.library.sm90_forward(ctypes.byref(self.calls["forward"]))

    def backward(self):
        self.library.sm90_backward(ctypes.byref(self.calls["backward"]))

    def close(self):
        for device_mask in self.maps.values():
            self.library.c.flashmask_device_mask_destroy(device_mask)
