#include <stdio.h>

#include "flashmask/flashmask.h"

int main(void) {
  const flashmask_document documents[] = {{5, 0}, {3, 0}};
  flashmask_mask_options options = {0};
  flashmask_mask* mask = NULL;
  int64_t cells = 0;
  options.struct_size = sizeof options;
  options.rows = 8;
  options.documents = documents;
  options.document_count = 2;
  if (flashmask_mask_build("causal_document", &options, &mask) != FLASHMASK_OK ||
      flashmask_mask_visible_cells(mask, &cells) != FLASHMASK_OK) {
    fprintf(stderr, "%s\n", flashmask_last_error());
    return 1;
  }
  flashmask_mask_destroy(mask);
  printf("%lld visible cells\n", (long long)cells);
  return cells == 15 + 6 ? 0 : 1;
}
