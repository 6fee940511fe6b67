#pragma once
// The most that tile instructions give: products of registers, without memory. Its own file, which
// alone is compiled for them.

/// Some products on this thread. @pre ops::isa_supported(ops::Isa::kAmx)
void run_tile_products();
/// Floating-point operations of one call.
double tile_product_flop();
