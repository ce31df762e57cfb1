#include "overlap/agreement.hpp"

#include <vector>

#include "core/check.hpp"

namespace flashmask::overlap {

void check_agreement(Communicator& communicator, std::span<const Field> fields) {
  std::vector<std::uint64_t> mine;
  for (const Field& field : fields) mine.push_back(field.value);
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (std::size_t f = 0; f < fields.size(); ++f) {
    for (std::size_t r = 1; r < static_cast<std::size_t>(communicator.size()); ++r) {
      const std::uint64_t here = all[r * fields.size() + f];
      core::check(here == all[f], "ranks disagree on {}: rank 0 has {:#x}, rank {} has {:#x}; give every rank the same",
                  fields[f].name, all[f], r, here);
    }
  }
}

}  // namespace flashmask::overlap
