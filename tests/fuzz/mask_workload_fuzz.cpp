// libFuzzer target: any bytes as a mask file, a workload file and a generator's spec (docs/fuzzing.md).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "format/mask_json.hpp"
#include "format/workload.hpp"
#include "fuzz/only_errors.hpp"

namespace {

namespace format = flashmask::format;

constexpr std::int64_t kSmall = 4096;  // larger masks are legal, but slow to build by the million

void fuzz_workload(std::string_view text) {
  const format::Workload workload = format::parse_workload(text, "fuzz");
  const std::string written = format::to_json(workload);
  if (format::to_json(format::parse_workload(written, "again")) != written) std::abort();  // writing must be stable
  if (workload.rows * static_cast<std::int64_t>(workload.batch.size()) > kSmall) return;
  const flashmask::ColumnMask mask = flashmask::masks::build(workload.mask, format::builder_options(workload));
  if (mask.visible_cells() < 0) std::abort();
}

void fuzz_mask(std::string_view text) {
  const format::MaskDescription description = format::parse_mask_description(text, "fuzz");
  const auto& options = description.options;
  if (!description.vectors && (options.batch * options.mask_heads > 64 || options.rows > kSmall ||
                               options.columns.value_or(options.rows) > kSmall)) {
    return;
  }
  const flashmask::ColumnMask mask = format::build_mask(description);
  const auto read = format::build_mask(format::parse_mask_description(format::to_json(mask), "again"));
  if (!(read == mask)) std::abort();
}

void fuzz_spec(std::string_view text) {
  if (text.size() <= 64 && format::is_generator(text)) format::generate(text, {.rows = 512});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  flashmask::fuzz::only_errors_of_ours([&] { fuzz_workload(text); });
  flashmask::fuzz::only_errors_of_ours([&] { fuzz_mask(text); });
  flashmask::fuzz::only_errors_of_ours([&] { fuzz_spec(text); });
  return 0;
}
