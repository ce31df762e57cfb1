// A simulated step as a picture.
#pragma once

#include <string>

#include "overlap/simulate.hpp"

namespace flashmask::app {

/// SVG: one band a rank for forward and backward; attention, and below it the transfers each rank sends.
std::string timeline_svg(const overlap::StepTimeline& step, const std::string& title);

}  // namespace flashmask::app
