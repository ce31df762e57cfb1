// libFuzzer target: any bytes as a plan file and as a calibration file (docs/fuzzing.md).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "balance/verify.hpp"
#include "format/plan_json.hpp"
#include "fuzz/only_errors.hpp"

namespace {

namespace format = flashmask::format;

/// What is accepted is consistent in itself and survives being written and read again.
void fuzz_plan(std::string_view text) {
  const flashmask::Plan plan = format::parse_plan(text, "fuzz");
  const flashmask::Plan again = format::parse_plan(format::plan_json(plan).dump(), "again");
  if (!(again == plan) || again.digest() != plan.digest()) std::abort();
  // The verifier is naive on purpose, and repeats searches.
  const bool searched = plan.record().bound_by == flashmask::BoundBy::search;
  if (plan.chunks() > (searched ? 16 : 64) || plan.ranks() > 64) return;
  for (const auto& finding : flashmask::balancing::verify(plan.record(), {}, {}).findings) {
    // The record checks itself against everything but false bounds and false labels.
    bool excused = false;
    for (const char* word :
         {"lower_bound", "peak", "bound_by", "kind is ", "method is ", "unit is ", "by lpt", "the fastest ranks"})
      excused = excused || finding.find(word) != std::string::npos;
    if (!excused) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  flashmask::fuzz::only_errors_of_ours([&] { fuzz_plan(text); });
  flashmask::fuzz::only_errors_of_ours([&] { format::parse_calibration(text, "fuzz"); });
  return 0;
}
