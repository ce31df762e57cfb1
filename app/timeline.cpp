#include "timeline.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace flashmask::app {
namespace {

constexpr double kWidth = 1200, kLeft = 60, kBand = 26, kTop = 40;

const char* colour(const overlap::Span& span) {
  switch (span.kind) {
    case overlap::Span::Kind::attention:
      return "#4c78a8";
    case overlap::Span::Kind::gather:
      return span.link == Link::inside ? "#f2a900" : "#d1495b";
    case overlap::Span::Kind::reduce:
      return span.link == Link::inside ? "#7fb069" : "#2e6f40";
  }
  return "#000";
}

/// Attention on the upper half of the band; inside-node transfers on the third quarter, crossings on the last.
void add_span(std::string& out, const overlap::Span& span, double x0, double scale, double y) {
  const bool attention = span.kind == overlap::Span::Kind::attention;
  const double height = attention ? 11 : 5;
  const double top = attention ? y : y + (span.link == Link::inside ? 12 : 18);
  out +=
      fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"/>\n",
                  x0 + span.begin * scale, top, std::max(0.3, (span.end - span.begin) * scale), height, colour(span));
}

void add_pass(std::string& out, const overlap::PassTimeline& pass, const char* name, double x0, double scale) {
  out += fmt::format("<text x=\"{:.1f}\" y=\"34\">{}: {:.3f} ms, exposed {:.3f} ms, E {:.2f}</text>\n", x0, name,
                     pass.time * 1e3, pass.exposed() * 1e3, pass.efficiency());
  for (std::size_t r = 0; r < pass.ranks.size(); ++r) {
    for (const overlap::Span& span : pass.ranks[r].spans) {
      add_span(out, span, x0, scale, kTop + static_cast<double>(r) * kBand);
    }
  }
}

}  // namespace

std::string timeline_svg(const overlap::StepTimeline& step, const std::string& title) {
  const auto ranks = static_cast<double>(step.forward.ranks.size());
  const double scale = step.time() > 0 ? (kWidth - kLeft - 30) / step.time() : 0;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<text x=\"{:.0f}\" y=\"16\">{}</text>\n",
      kWidth, kTop + ranks * kBand + 24, kLeft, title);
  for (std::size_t r = 0; r < step.forward.ranks.size(); ++r) {
    out += fmt::format("<text x=\"4\" y=\"{:.1f}\">rank {}</text>\n", kTop + static_cast<double>(r) * kBand + 11, r);
  }
  add_pass(out, step.forward, "forward", kLeft, scale);
  add_pass(out, step.backward, "backward", kLeft + step.forward.time * scale + 10, scale);
  out += fmt::format(
      "<text x=\"{:.0f}\" y=\"{:.0f}\">blue: attention; yellow and red: gather inside and between nodes; light and "
      "dark "
      "green: reduce inside and between nodes</text>\n</svg>\n",
      kLeft, kTop + ranks * kBand + 16);
  return out;
}

}  // namespace flashmask::app
