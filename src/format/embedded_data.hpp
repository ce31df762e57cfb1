// The shipped data files as text, compiled in (sources: data/README.md).
#pragma once

#include <string_view>

namespace flashmask::format {

std::string_view doc_length_histogram_csv();
std::string_view wikipedia_histogram_csv();
std::string_view kernel_packs_json();

}  // namespace flashmask::format
