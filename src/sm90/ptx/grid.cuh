// Dependent launches (PTX ISA "griddepcontrol"): both do nothing in a kernel that was launched on its own.
#pragma once

namespace flashmask::sm90::ptx {

/// griddepcontrol.launch_dependents: once every block of this grid has said so or ended, the next kernel of the stream
/// may be launched if it was queued as dependent.
__device__ __forceinline__ void launch_dependent_grids() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// griddepcontrol.wait: until the kernels this one depends on have ended and their writes are visible.
__device__ __forceinline__ void wait_for_prerequisite_grids() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace flashmask::sm90::ptx
