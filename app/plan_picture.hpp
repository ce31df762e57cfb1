// A plan as an SVG picture: mask and tile classes, the owner of every chunk, the load of every rank.
#pragma once

#include <string>

#include "flashmask/balance.hpp"

namespace flashmask::app {

/// `mask` is null for bare loads: then only owners and loads are drawn.
std::string plan_picture(const Plan& plan, const ColumnMask* mask, const std::string& title);

}  // namespace flashmask::app
