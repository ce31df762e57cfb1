// `flashmask plan --verify FILE`.
#pragma once

#include <string>

#include "plan_request.hpp"

namespace flashmask::app {

/// Checks the plan in `file` by itself and, when the request names a mask, against it; writes the verdict as JSON to
/// `json` (empty: nowhere, "-": standard output) and otherwise in words. Returns the exit code.
int verify_plan_file(PlanRequest request, const std::string& file, const std::string& json);

}  // namespace flashmask::app
