/* The C ABI of flashmask: opaque handles, status codes, per-thread error text. Usable from C99 and from any language
 * with a C foreign-function interface. It is versioned and only grows: structs carry their size, which must be one
 * that was published, functions never change.
 *
 * Every function that can fail returns a status; on anything but FLASHMASK_OK, flashmask_last_error() of the same
 * thread says which argument, which value, what is allowed. No exception crosses this boundary and nothing is printed.
 * Out-parameters are written only on success. All pointers are host memory, except in the sm90 section. */
#ifndef FLASHMASK_FLASHMASK_H
#define FLASHMASK_FLASHMASK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FLASHMASK_API __attribute__((visibility("default")))
#else
#define FLASHMASK_API
#endif

#define FLASHMASK_ABI_VERSION 2

typedef enum flashmask_status {
  FLASHMASK_OK = 0,
  FLASHMASK_INVALID_ARGUMENT = 1,
  FLASHMASK_UNSUPPORTED = 2,
  FLASHMASK_OUT_OF_MEMORY = 3,
  FLASHMASK_IO = 4,
  FLASHMASK_TIMEOUT = 5,
  FLASHMASK_DEVICE = 6,
  FLASHMASK_INTERNAL = 7
} flashmask_status;

/* FLASHMASK_ABI_VERSION of the loaded library. */
FLASHMASK_API int32_t flashmask_abi_version(void);
/* "major.minor.patch" of the loaded library. */
FLASHMASK_API const char* flashmask_version(void);
/* Stable name of a status, e.g. "invalid_argument"; "unknown" for other values. */
FLASHMASK_API const char* flashmask_status_name(int32_t status);
/* Text of the last failure on this thread, "" if none; valid until the next call on this thread. */
FLASHMASK_API const char* flashmask_last_error(void);

/* ---- masks ------------------------------------------------------------------------------------------------------ */

/* An immutable mask in canonical form; safe to use from several threads at once. */
typedef struct flashmask_mask flashmask_mask;

typedef struct flashmask_mask_shape {
  int64_t batch, heads, rows, columns; /* heads: 1, the KV heads or the query heads */
} flashmask_mask_shape;

/* One packed document: `length` tokens, the first `prefix` of them shared or bidirectional (0: the builder's default,
 * -1: none). */
typedef struct flashmask_document {
  int64_t length;
  int64_t prefix;
} flashmask_document;

/* Options of flashmask_mask_build; zero-initialise, set struct_size = sizeof(flashmask_mask_options), then what you
 * need. Fields that are 0 (or NULL) take the default of the named builder. */
typedef struct flashmask_mask_options {
  size_t struct_size;
  int64_t rows;
  int64_t columns; /* 0: as rows */
  int64_t batch;   /* 0: 1 */
  int64_t heads;   /* mask heads; 0: 1 */
  const flashmask_document* documents;
  size_t document_count;
  int64_t window;        /* sliding_window: keys; global_sliding_window: reach; 0: the builder's default; -1: none, so a
                            reach of 0 (sliding_window has at least 1 key and refuses it) */
  int64_t global_tokens; /* -1: none; 0: the builder's default */
  int64_t prefix;        /* prefix_lm_causal; -1: none; 0: the builder's default */
  uint64_t seed;
} flashmask_mask_options;

/* From four vectors [batch][heads][columns] of any int32 values (they are copied and canonicalised). */
FLASHMASK_API flashmask_status flashmask_mask_create(flashmask_mask_shape shape, const int32_t* lts, const int32_t* lte,
                                                     const int32_t* uts, const int32_t* ute, flashmask_mask** mask);
/* From startend_row_indices [batch][heads][columns][bounds] and its causal flag: (causal, 1), (causal, 2), (not causal,
 * 2) or (not causal, 4); anything else is refused. */
FLASHMASK_API flashmask_status flashmask_mask_from_startend_row_indices(flashmask_mask_shape shape,
                                                                        const int32_t* indices, int32_t bounds,
                                                                        int32_t causal, flashmask_mask** mask);
/* From a builder's name (flashmask_builder_name lists them). */
FLASHMASK_API flashmask_status flashmask_mask_build(const char* name, const flashmask_mask_options* options,
                                                    flashmask_mask** mask);
/* Name of builder i, NULL past the last. */
FLASHMASK_API const char* flashmask_builder_name(size_t i);
/* Accepts NULL. */
FLASHMASK_API void flashmask_mask_destroy(flashmask_mask* mask);

FLASHMASK_API flashmask_status flashmask_mask_get_shape(const flashmask_mask* mask, flashmask_mask_shape* shape);
FLASHMASK_API flashmask_status flashmask_mask_visible_cells(const flashmask_mask* mask, int64_t* cells);
FLASHMASK_API flashmask_status flashmask_mask_digest(const flashmask_mask* mask, uint64_t* digest);
/* Visible columns of each row of one (batch, mask head); counts holds `rows` numbers. */
FLASHMASK_API flashmask_status flashmask_mask_row_counts(const flashmask_mask* mask, int64_t batch, int64_t head,
                                                         int64_t* counts);
/* Canonical vectors, batch * heads * columns numbers each; any pointer may be NULL. */
FLASHMASK_API flashmask_status flashmask_mask_export_vectors(const flashmask_mask* mask, int32_t* lts, int32_t* lte,
                                                             int32_t* uts, int32_t* ute);
/* Row-major [rows][columns] of 0 and 1 (visible) of one (batch, mask head). */
FLASHMASK_API flashmask_status flashmask_mask_export_dense(const flashmask_mask* mask, int64_t batch, int64_t head,
                                                           uint8_t* visible);

/* ---- tiles ------------------------------------------------------------------------------------------------------ */

typedef enum flashmask_tile_rule { FLASHMASK_RULE_MINMAX = 0, FLASHMASK_RULE_EXACT = 1 } flashmask_tile_rule;

typedef struct flashmask_tile_statistics {
  int64_t masked, partial, unmasked; /* tiles over batch and mask heads */
  double element_density;            /* visible share of the cells */
  double tile_density;               /* share of the tiles that are not masked */
} flashmask_tile_statistics;

/* rule: a flashmask_tile_rule. */
FLASHMASK_API flashmask_status flashmask_mask_tile_statistics(const flashmask_mask* mask, int32_t block_m,
                                                              int32_t block_n, int32_t rule,
                                                              flashmask_tile_statistics* statistics);

/* Classification of a mask for one tile shape, built once and used by any number of calls with that mask; a call with
 * another mask is refused. Keep the mask alive as long. */
typedef struct flashmask_tile_map flashmask_tile_map;
FLASHMASK_API flashmask_status flashmask_tile_map_create(const flashmask_mask* mask, int32_t block_m, int32_t block_n,
                                                         int32_t rule, flashmask_tile_map** map);
FLASHMASK_API void flashmask_tile_map_destroy(flashmask_tile_map* map);

/* ---- attention -------------------------------------------------------------------------------------------------- */

typedef enum flashmask_dtype { FLASHMASK_F32 = 0, FLASHMASK_F16 = 1, FLASHMASK_BF16 = 2 } flashmask_dtype;

typedef struct flashmask_attention_shape {
  int64_t batch, rows, columns, query_heads, kv_heads, head_dim;
} flashmask_attention_shape;

/* A 4-D tensor; strides in elements for (batch, position, head, dim). Inputs may have stride 0 along batch, position
   and head (a broadcast), never along dim; all four 0 (a struct left zero-initialised) are refused. Outputs need
   positive strides under which no two elements overlap. */
typedef struct flashmask_tensor {
  void* data;
  int64_t strides[4];
} flashmask_tensor;

/* Arguments of flashmask_forward; zero-initialise and set struct_size = sizeof(flashmask_forward_arguments). */
typedef struct flashmask_forward_arguments {
  size_t struct_size;
  flashmask_attention_shape shape;
  const flashmask_mask* mask;
  const flashmask_tile_map* map; /* NULL: built inside the call */
  int32_t dtype;                 /* flashmask_dtype of q, k, v and out */
  flashmask_tensor q, k, v, out;
  float* lse;      /* contiguous [batch][query_heads][rows], natural logarithm */
  float scale;     /* of the scores; 0: 1 / sqrt(head_dim) */
  int32_t threads; /* at most 4096; 0: FLASHMASK_THREADS of the environment, else one per core */
} flashmask_forward_arguments;

typedef struct flashmask_backward_arguments {
  size_t struct_size;
  flashmask_attention_shape shape;
  const flashmask_mask* mask;
  const flashmask_tile_map* map;
  int32_t dtype;
  flashmask_tensor q, k, v, out, dout;
  const float* lse;
  flashmask_tensor dq, dk, dv;
  float scale;     /* must be the forward's */
  int32_t threads; /* as in flashmask_forward_arguments */
} flashmask_backward_arguments;

/* On host memory, on the CPU. What a row does not see does not reach it, NaN and infinity included: padding need not be
 * initialised. */
FLASHMASK_API flashmask_status flashmask_forward(const flashmask_forward_arguments* arguments);
FLASHMASK_API flashmask_status flashmask_backward(const flashmask_backward_arguments* arguments);

/* ---- sm90: Hopper GPUs ------------------------------------------------------------------------------------------ */
/* Tensors, mask vectors and workspaces are device memory; `stream` is a cudaStream_t. Calls validate, then queue their
 * work on the stream: no allocation, no synchronisation, legal under graph capture, unless said otherwise. Without CUDA
 * in the build every function of this section returns FLASHMASK_UNSUPPORTED, and so does, where it would touch the
 * device, a machine without a Hopper GPU. dtype: FLASHMASK_F16 or FLASHMASK_BF16.
 * Tensors: data aligned to 16 bytes (lse, contiguous [batch][query_heads][rows]: to 4), stride 1 along dim, the others
 * positive multiples of 8 below 2^39, unless the extent is 1 or less. Stride 0 (a
 * broadcast) is for flashmask_forward and flashmask_backward alone: here it is refused. The memory of an output belongs
 * to nothing else of the call. */

/* The fastest tile of the forward for a mask (NULL: the default tile) whatever the heads, and the default one of the
 * backward, which every call takes.
 * A tile is block_m mask rows x block_n key columns. */
FLASHMASK_API flashmask_status flashmask_sm90_forward_tile(const flashmask_mask* mask, int64_t head_dim,
                                                           int32_t* block_m, int32_t* block_n);
/* The fastest for calls of this shape: where 8 divides the query heads of a KV head and of a mask head, it may be the
 * packed tile, in which 8 query heads share the K and V of 24 mask rows. Calls with other heads refuse its maps. */
FLASHMASK_API flashmask_status flashmask_sm90_choose_forward_tile(const flashmask_mask* mask,
                                                                  flashmask_attention_shape shape, int32_t* block_m,
                                                                  int32_t* block_n);
FLASHMASK_API flashmask_status flashmask_sm90_backward_tile(int32_t* block_m, int32_t* block_n);
/* The fastest tile of the backward for a mask and calls of this shape. Deterministic calls take the default one. */
FLASHMASK_API flashmask_status flashmask_sm90_choose_backward_tile(const flashmask_mask* mask,
                                                                   flashmask_attention_shape shape,
                                                                   int32_t deterministic, int32_t* block_m,
                                                                   int32_t* block_n);

/* A mask on the device, classified for one tile, used by any number of heads, layers and calls. Create allocates. */
typedef struct flashmask_device_mask flashmask_device_mask;
FLASHMASK_API flashmask_status flashmask_device_mask_create(flashmask_mask_shape shape, int32_t block_m,
                                                            int32_t block_n, flashmask_device_mask** mask);
/* The same for calls of shape `calls` above all: the row tiles of a mask with several batch rows or heads are worked on
 * in sections of as many heads as have K and V in the L2 cache. Right for all calls that take the mask and the tile, as
 * `calls` must. */
FLASHMASK_API flashmask_status flashmask_device_mask_create_for(flashmask_mask_shape shape, int32_t block_m,
                                                                int32_t block_n, flashmask_attention_shape calls,
                                                                flashmask_device_mask** mask);
/* From four device vectors [batch][heads][columns] of any int32 values. A NULL vector stands for lts = rows, lte =
 * rows, uts = 0 or ute = 0: with both of a pair NULL that pair hides nothing, with lts alone [lts, rows), with ute
 * alone [0, ute). They must stay until the stream has passed this call. */
FLASHMASK_API flashmask_status flashmask_device_mask_refill(flashmask_device_mask* mask, const int32_t* lts,
                                                            const int32_t* lte, const int32_t* uts, const int32_t* ute,
                                                            void* stream);
/* Accepts NULL. No call that uses the mask may be in flight. */
FLASHMASK_API void flashmask_device_mask_destroy(flashmask_device_mask* mask);

typedef struct flashmask_sm90_forward_arguments {
  size_t struct_size;
  flashmask_attention_shape shape;
  const flashmask_device_mask* mask;
  int32_t dtype;
  flashmask_tensor q, k, v, out;
  float* lse;
  float scale;     /* 1e-20 to 1e8; 0: 1 / sqrt(head_dim) */
  void* workspace; /* 16-byte aligned; prepared once; one per stream in flight */
  void* stream;
  int32_t grid; /* CTAs; 0: one per multiprocessor */
} flashmask_sm90_forward_arguments;

typedef struct flashmask_sm90_backward_arguments {
  size_t struct_size;
  flashmask_attention_shape shape;
  const flashmask_device_mask* mask; /* of the backward's tile */
  int32_t dtype;
  flashmask_tensor q, k, v, out, dout;
  const float* lse;
  flashmask_tensor dq, dk, dv;
  float scale;     /* must be the forward's; 0: 1 / sqrt(head_dim) */
  void* workspace; /* 256-byte aligned; needs no preparation */
  void* stream;
  int32_t deterministic;  /* 1: bitwise equal from run to run */
  size_t workspace_bytes; /* what the workspace has; flashmask_sm90_backward_workspace_bytes() or more */
} flashmask_sm90_backward_arguments;

FLASHMASK_API flashmask_status flashmask_sm90_forward_workspace_bytes(size_t* bytes);
/* Queues the initialisation of a forward workspace, once before its first use. */
FLASHMASK_API flashmask_status flashmask_sm90_prepare_workspace(void* workspace, void* stream);
/* Synchronises the stream; FLASHMASK_TIMEOUT, naming the wait, if a kernel that used the workspace gave up waiting. */
FLASHMASK_API flashmask_status flashmask_sm90_check_workspace(const void* workspace, void* stream);
FLASHMASK_API flashmask_status flashmask_sm90_forward(const flashmask_sm90_forward_arguments* arguments);

FLASHMASK_API flashmask_status flashmask_sm90_backward_workspace_bytes(flashmask_attention_shape shape,
                                                                       flashmask_mask_shape mask, int32_t deterministic,
                                                                       size_t* bytes);
FLASHMASK_API flashmask_status flashmask_sm90_backward(const flashmask_sm90_backward_arguments* arguments);
/* Synchronises the stream; FLASHMASK_TIMEOUT, naming the wait, if the last backward on the workspace gave up waiting.
 */
FLASHMASK_API flashmask_status flashmask_sm90_check_backward_workspace(const void* workspace, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* FLASHMASK_FLASHMASK_H */
