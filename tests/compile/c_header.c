#include "flashmask/flashmask.h"
#include "flashmask/flashmask.h"

/* A translation unit must declare something. */
typedef flashmask_status (*forward_function)(const flashmask_forward_arguments*);
