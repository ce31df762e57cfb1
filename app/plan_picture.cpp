#include "plan_picture.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "flashmask/tile.hpp"

namespace flashmask::app {
namespace {

constexpr double kSide = 640;  // of the mask square
constexpr double kStrip = 24;  // owners
constexpr double kBars = 260;  // longest load bar
constexpr double kMargin = 28;
constexpr std::int64_t kMostBlocks = 256;

/// Colours that neighbouring ranks tell apart: the golden angle around the wheel.
std::string colour(std::int64_t rank) {
  return fmt::format("hsl({:.0f},62%,{}%)", static_cast<double>((rank * 137) % 360), 44 + (rank % 3) * 9);
}

std::string box(double x, double y, double width, double height, const std::string& fill) {
  return fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n", x, y, width,
                     height, fill);
}

std::string text(double x, double y, const std::string& words, const char* anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, words);
}

std::string escaped(const std::string& words) {
  std::string out;
  for (const char c : words) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

/// Tiles of the first mask head, in blocks coarse enough to draw; visible runs only.
std::string tiles(const Plan& plan, const ColumnMask& mask) {
  std::int32_t block = 128;
  while (plan.columns() / block > kMostBlocks) block *= 2;
  while (block > 1 && plan.columns() / block < 16) block /= 2;
  const TileMap map = TileMap::build(mask, {block, block});
  const double scale = kSide / static_cast<double>(std::max<std::int64_t>(1, plan.columns()));
  std::string out = box(kMargin, kMargin, kSide, kSide, "#f4f4f4");
  for (std::int64_t i = 0; i < map.row_blocks(); ++i) {
    const double top = static_cast<double>(i * block) * scale;
    const double bottom = static_cast<double>(std::min<std::int64_t>((i + 1) * block, plan.columns())) * scale;
    for (const TileRun& run : map.row(0, 0, i)) {
      const std::int64_t begin = std::int64_t{run.first} * block;
      const std::int64_t end = std::min<std::int64_t>(begin + std::int64_t{run.count} * block, plan.columns());
      out += box(kMargin + static_cast<double>(begin) * scale, kMargin + top, static_cast<double>(end - begin) * scale,
                 bottom - top, run.tile_class == TileClass::partial ? "#7fb3d5" : "#1f4e79");
    }
  }
  return out;
}

std::string owners(const Plan& plan, double left) {
  std::string out;
  const double scale = kSide / static_cast<double>(std::max<std::int64_t>(1, plan.columns()));
  for (std::int64_t c = 0; c < plan.chunks(); ++c) {
    const double top = static_cast<double>(plan.chunk_begin(c)) * scale;
    out += box(left, kMargin + top, kStrip, static_cast<double>(plan.chunk_end(c)) * scale - top,
               colour(plan.rank_of_chunk(c)));
  }
  return out;
}

/// One bar a rank, cut at its chunks, as long as the rank takes (a slower rank longer for its load); the line is the
/// lower bound.
std::string bars(const Plan& plan, double left) {
  std::string out;
  const double unit = kBars / static_cast<double>(std::max<std::int64_t>(1, plan.peak()));
  const double height = kSide / static_cast<double>(plan.ranks());
  const std::vector<std::int64_t>& speeds = plan.record().speeds;
  const double fastest = speeds.empty() ? 1 : static_cast<double>(*std::max_element(speeds.begin(), speeds.end()));
  for (std::int64_t r = 0; r < plan.ranks(); ++r) {
    double x = left;
    const double y = kMargin + static_cast<double>(r) * height;
    const double slowness = speeds.empty() ? 1 : fastest / static_cast<double>(speeds[static_cast<std::size_t>(r)]);
    for (const std::int64_t c : plan.chunks_of(r)) {
      const double width =
          static_cast<double>(plan.record().chunk_loads[static_cast<std::size_t>(c)]) * slowness * unit;
      out += box(x, y + height * 0.1, std::max(0.0, width - 0.4), height * 0.8, colour(r));
      x += width;
    }
    if (height >= 9) out += text(left - 5, y + height * 0.65, std::to_string(r), "end");
  }
  const double line = left + static_cast<double>(plan.lower_bound()) * unit;
  return out + fmt::format(
                   "<line x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1:.2f}\" y2=\"{2:.2f}\" stroke=\"#c0392b\" "
                   "stroke-dasharray=\"4 3\"/>\n",
                   line, kMargin, kMargin + kSide);
}

}  // namespace

std::string plan_picture(const Plan& plan, const ColumnMask* mask, const std::string& title) {
  const double strip = mask != nullptr ? kMargin + kSide + 6 : kMargin;
  const double load = strip + kStrip + 44;
  const double width = load + kBars + kMargin, height = kSide + 2 * kMargin + 22;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n",
      width, height);
  out += box(0, 0, width, height, "#ffffff");
  out += text(kMargin, 18,
              escaped(fmt::format("{}: {}, {} chunks of {} on {} ranks, peak {} (bound {}{}), peak/average {:.4f}",
                                  title, to_string(plan.kind()), plan.chunks(), plan.chunk(), plan.ranks(), plan.peak(),
                                  plan.lower_bound(), plan.proven_optimal() ? ", optimal" : "", plan.imbalance())));
  if (mask != nullptr) out += tiles(plan, *mask);
  out += owners(plan, strip) + bars(plan, load);
  out += text(kMargin, kMargin + kSide + 18,
              mask != nullptr ? "dark: unmasked tiles, light: partial; strip: owner of each chunk; bars: load by rank, "
                                "dashed: lower bound"
                              : "strip: owner of each chunk; bars: load by rank, dashed: lower bound");
  return out + "</svg>\n";
}

}  // namespace flashmask::app
