/* The C ABI from C99: two packed documents (4 and 2 tokens), causal, Q = 0, so every row averages the values it sees
 * and its LSE is the logarithm of how many there are. Prints the first difference and returns 1 on failure. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "flashmask/flashmask.h"

enum { ROWS = 6, DIM = 4 };

static int failures = 0;

static void expect(int ok, const char* what) {
  if (!ok) {
    printf("FAILED: %s (last error: \"%s\")\n", what, flashmask_last_error());
    ++failures;
  }
}

static void expect_near(double got, double want, const char* what, int index) {
  if (!(fabs(got - want) <= 1e-6)) {
    printf("FAILED: %s[%d] is %.9g, expected %.9g\n", what, index, got, want);
    ++failures;
  }
}

static flashmask_tensor contiguous(float* data) {
  flashmask_tensor t = {0};
  t.data = data;
  t.strides[0] = ROWS * DIM;
  t.strides[1] = DIM;
  t.strides[2] = DIM;
  t.strides[3] = 1;
  return t;
}

int main(void) {
  static const double counts[ROWS] = {1, 2, 3, 4, 1, 2};
  static const double means[ROWS] = {0, 0.5, 1, 1.5, 4, 4.5}; /* of the values 0..5 that a row sees */
  static const int32_t document_end[ROWS] = {4, 4, 4, 4, 6, 6};
  float q[ROWS * DIM] = {0}, k[ROWS * DIM], v[ROWS * DIM], out[ROWS * DIM], lse[ROWS];
  float dout[ROWS * DIM], dq[ROWS * DIM], dk[ROWS * DIM], dv[ROWS * DIM];
  flashmask_mask* mask = NULL;
  flashmask_mask* refused = NULL;
  flashmask_mask_shape shape = {1, 1, ROWS, ROWS};
  flashmask_forward_arguments forward;
  flashmask_backward_arguments backward;
  int i;

  for (i = 0; i < ROWS * DIM; ++i) {
    k[i] = (float)(i % 7) - 3.0F;
    v[i] = (float)(i / DIM);
    dout[i] = 1.0F;
    out[i] = dq[i] = dk[i] = dv[i] = NAN;
  }
  expect(flashmask_abi_version() == FLASHMASK_ABI_VERSION, "the ABI version of header and library agree");
  expect(flashmask_mask_from_startend_row_indices(shape, document_end, 1, 1, &mask) == FLASHMASK_OK,
         "causal documents");
  expect(flashmask_mask_from_startend_row_indices(shape, document_end, 4, 1, &refused) == FLASHMASK_INVALID_ARGUMENT,
         "causal with four bounds is refused");
  expect(refused == NULL && strlen(flashmask_last_error()) > 0, "a refusal writes no handle and says why");

  memset(&forward, 0, sizeof forward);
  forward.struct_size = sizeof forward;
  forward.shape.batch = 1;
  forward.shape.rows = forward.shape.columns = ROWS;
  forward.shape.query_heads = forward.shape.kv_heads = 1;
  forward.shape.head_dim = DIM;
  forward.mask = mask;
  forward.dtype = FLASHMASK_F32;
  forward.q = contiguous(q);
  forward.k = contiguous(k);
  forward.v = contiguous(v);
  forward.out = contiguous(out);
  forward.lse = lse;
  expect(flashmask_forward(&forward) == FLASHMASK_OK, "forward");
  for (i = 0; i < ROWS; ++i) {
    expect_near(lse[i], log(counts[i]), "lse", i);
    expect_near(out[i * DIM], means[i], "out", i);
  }

  memset(&backward, 0, sizeof backward);
  backward.struct_size = sizeof backward;
  backward.shape = forward.shape;
  backward.mask = mask;
  backward.dtype = FLASHMASK_F32;
  backward.q = forward.q;
  backward.k = forward.k;
  backward.v = forward.v;
  backward.out = forward.out;
  backward.dout = contiguous(dout);
  backward.lse = lse;
  backward.dq = contiguous(dq);
  backward.dk = contiguous(dk);
  backward.dv = contiguous(dv);
  expect(flashmask_backward(&backward) == FLASHMASK_OK, "backward");
  expect_near(dv[0], 1.0 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4, "dv", 0); /* column 0 is seen by rows 0..3 */
  expect_near(dv[3 * DIM], 1.0 / 4, "dv", 3);
  expect_near(dv[5 * DIM], 1.0 / 2, "dv", 5);
  for (i = 0; i < ROWS * DIM; ++i) expect_near(dk[i], 0, "dk", i); /* Q = 0 */

  forward.shape.head_dim = -1;
  expect(flashmask_forward(&forward) == FLASHMASK_INVALID_ARGUMENT, "a negative head_dim is refused");
  expect(strstr(flashmask_last_error(), "head_dim") != NULL, "the refusal names head_dim");
  flashmask_mask_destroy(mask);
  flashmask_mask_destroy(NULL);
  printf("%d failures\n", failures);
  return failures != 0;
}
