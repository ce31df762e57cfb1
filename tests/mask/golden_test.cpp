// The benchmark masks against numbers computed by an independent script (tests/mask/golden/benchmark_masks.txt).
#include <fstream>
#include <sstream>

#include "flashmask/tile.hpp"
#include "mask/mask_test_support.hpp"

namespace flashmask::masks {
namespace {

/// FNV-1a, one 64-bit word a step, as in the golden file.
class Fnv {
 public:
  void add(std::int64_t value) { state_ = (state_ ^ static_cast<std::uint64_t>(value)) * 0x100000001B3ULL; }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325ULL;
};

std::vector<Document> read_documents(std::istringstream& line) {
  std::vector<Document> documents;
  std::string entry;
  while (line >> entry) {
    const std::size_t colon = entry.find(':');
    documents.push_back({.length = std::stoll(entry.substr(colon + 1)), .prefix = std::stoll(entry.substr(0, colon))});
  }
  return documents;
}

void check_mask(std::istringstream& line, const std::vector<Document>& documents) {
  std::string name, tiles, column_hash, row_hash;
  std::int64_t rows = 0, cells = 0;
  line >> name >> rows >> cells >> tiles >> column_hash >> row_hash;
  SCOPED_TRACE(name + " at " + std::to_string(rows));
  const BuilderOptions options{.rows = rows, .documents = documents};
  const ColumnMask mask = build(name, options);
  EXPECT_EQ(mask.visible_cells(), cells);
  EXPECT_EQ(closed_form_visible_cells(name, options), cells);
  Fnv columns, counts;
  for (std::int64_t j = 0; j < rows; ++j) columns.add(hidden_count(mask.at(0, 0, j)));
  for (const std::int64_t count : mask.row_counts(0, 0)) counts.add(count);
  EXPECT_EQ(columns.value(), std::stoull(column_hash, nullptr, 16)) << "hidden rows of the columns";
  EXPECT_EQ(counts.value(), std::stoull(row_hash, nullptr, 16)) << "visible columns of the rows";
  if (tiles != "-") {
    const double blocks = static_cast<double>(rows / 128);
    EXPECT_NEAR(tile_density(mask) * blocks * blocks, std::stod(tiles), 1e-3) << "128 x 128 tiles that are not masked";
  }
}

TEST(Golden, benchmark_masks_equal_the_independent_numbers) {
  std::ifstream file(FLASHMASK_SOURCE_DIR "/tests/mask/golden/benchmark_masks.txt");
  ASSERT_TRUE(file) << "the golden file is missing";
  std::vector<Document> documents;
  int masks = 0;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string kind;
    line >> kind;
    if (kind == "documents") {
      std::int64_t rows = 0;
      line >> rows;
      documents = read_documents(line);
    } else if (kind == "mask") {
      check_mask(line, documents);
      ++masks;
    }
  }
  EXPECT_EQ(masks, 44);
}

}  // namespace
}  // namespace flashmask::masks
