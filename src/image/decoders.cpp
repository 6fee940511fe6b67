#include "caravan/image/decoders.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "base64.h"
#include "caravan/image/decode.h"
#include "caravan/io/sha256.h"
#include "vips_image.h"

namespace caravan::image {
namespace {

// A function of each library that libvips decodes with.
constexpr const char* kFunctions[] = {"jpeg_read_header", "WebPDecode",   "cmsDoTransform",
                                      "TIFFOpen",         "png_read_end", "spng_decode_image"};

// Small pictures of what libraries may decode in different ways.
constexpr std::string_view kBaselineJpeg =  // colour at half the size, both ways
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywt"
    "QFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09P"
    "T09PT09PT09PT09PT09PT09PT0//wAARCAASABQDASIAAhEBAxEB/8QAGAABAQEBAQAAAAAAAAAAAAAAAAUDBgT/xAAn"
    "EAEAAQQBAgQHAAAAAAAAAAABAgADBBEhBRMSIjFhMkFikdHh8P/EABgBAQADAQAAAAAAAAAAAAAAAAQCBQYH/8QAIhEA"
    "AQIFBAMAAAAAAAAAAAAAAQACAwURMUEEIlHwMnHx/9oADAMBAAIRAxEAPwDlsXp0CL4xD5aNDVHGwYy4icb/ALgqzY6c"
    "S+KI+/7rW7i3dSMK3ctRSWpdlRRA8ut8nu/iUSM8vLg7bxj4kS6aQXadrAN4zz2y8cOnvhBNa+rVK6jGw5ONbk22DKIs"
    "Z6E9vSlDdr2NNHE19VV8yYVaFliA21TaHrVXHDtMtc8c0pRolu8Fc0l2FTsQj2jyn2pSlEheAWrFl//Z";
constexpr std::string_view kProgressiveJpeg =  // colour at half the width
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywt"
    "QFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09P"
    "T09PT09PT09PT09PT09PT09PT0//wgARCAASABQDASEAAhEBAxEB/8QAFwABAQEBAAAAAAAAAAAAAAAABAACBf/EABgB"
    "AAMBAQAAAAAAAAAAAAAAAAIEBQEG/9oADAMBAAIQAxAAAAHlJN1MLu9jz7pWlheQE21P/8QAGhAAAgMBAQAAAAAAAAAA"
    "AAAAAAIBAzETIv/aAAgBAQABBQJaxUOZFZKyKnlcXIz/xAAcEQACAgIDAAAAAAAAAAAAAAABAwACBBAREiH/2gAIAQMB"
    "AT8BRUBIZAyYrjx1gv5MfX//xAAdEQACAgIDAQAAAAAAAAAAAAAAAQISAxExgdHw/9oACAECAQE/AZZXepf7Y2uR5nF6"
    "8G3XojFaP//EABkQAQACAwAAAAAAAAAAAAAAAAEAICEigf/aAAgBAQAGPwKmgnIYp//EABwQAAICAgMAAAAAAAAAAAAA"
    "AAABESExQRDR4f/aAAgBAQABPyFUWJeBU9JsotQF31GSUlYfFsFWh//aAAwDAQACAAMAAAAQkZCd/8QAHREBAAIABwAA"
    "AAAAAAAAAAAAAQARITFRYXHR8P/aAAgBAwEBPxABLb2kwCLubNLoPO3MvDM5Ban/xAAjEQEAAQMDAwUAAAAAAAAAAAAB"
    "EQAhMUFhcVGBsZGhweHw/9oACAECAQE/EBJRHp9xtlM0qbvj7GOKerjf9m7qt56U8EW3Hw+aYGdT3jPNRdiv/8QAHxAB"
    "AQACAgEFAAAAAAAAAAAAAREAITFhQXGR0eHw/9oACAEBAAE/EBqUPEIOagav7RjQJJ6MPgPf3koZEURRA4XZ2/DGJgsR"
    "OuMIpSoc4C43reTdPbP/2Q==";
constexpr std::string_view kLossyWebp =
    "UklGRtwAAABXRUJQVlA4INAAAABwBgCdASoUABIAPu1sqlEppaOiqAqpMB2JbACdMoRwN6BxqbhkgPUA9FkBhqq4oDpI"
    "NDxzz04S/VTz+gAA/u9heKsmaq8ry8Lysx5qMSmbnLmeASWO2t4IJRlSx/X23o0cpVSE2WNPjAFj7IAzx+S5CBKOdmYh"
    "MZzAdNZVqksEsrIYBhw75dwWBbDxSt/Scv62IqXUhcXLUlo5xLeLJ7Tg3pXwEH5Rsl74AWm7hfMRzgsufwHrfe7/Budb"
    "5yhiHBbo5tyfP4Vc0qkZ2ZfX3AAA";
constexpr std::string_view kWideGamutPng =  // with a colour profile
    "iVBORw0KGgoAAAANSUhEUgAAACUAAAAXCAIAAAADThHyAAAA32lDQ1BJQ0MgUHJvZmlsZQAAeJxjYGB8kZefl8rkwMCQ"
    "m1dSFOTupBARGaXA/pKBEQjBIDG5uIABL/h2DaL2si5+dVgBZ0pqcTKQ/gDEGckFRSUMDIwRQLZAeUkBiJ0BZIsUAR0F"
    "ZNeA2OkQ9gQQOwnCXgJWExLkDGTvAOlNh7BPgNhJEPYNEBtqFwjwlqQWlygUFOWnZeakkuFuvKAktaIERIPCFkSDwhQi"
    "gwgrhNjMWQwM/jEMDKzyCDHTwwwMCz0YGATfIMTU0hgY+IHq9mgmlxaVQa1iZDzLwECIDwCPQ0A3lxSo5gAAAJtJREFU"
    "eJxjZGBgYGdgxo84CCkgXg0LAzcbAwMz3RALAw/Uvqd/eRjQwV8Ghr8MDAzRzELUsw/uv08Y1sEB9cIA4T989vFQ0T6E"
    "23/R13947KOm/2BmSduK4knHtAhPeiAWKoYVzf1Xu7Uad5pmOOW9jOr+wwuwmUx/+yhKL3gBNpNH/TeC00vzih146ncG"
    "Bur7j2Q0/MtP+toHAJbEGhka/BGjAAAAAElFTkSuQmCC";

/// Name of the file that holds a function, without links: it ends in the library's version.
std::string file_of(const char* function) {
  void* const address = ::dlsym(RTLD_DEFAULT, function);
  Dl_info info{};
  if (address == nullptr || ::dladdr(address, &info) == 0) return "";
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(info.dli_fname, error);
  return error ? "" : path.filename().string();
}

}  // namespace

std::string decoder_versions() {
  std::string versions = fmt::format("libvips {}", vips_version_string());
  for (const char* function : kFunctions) {
    const std::string file = file_of(function);
    if (!file.empty() && versions.find(file) == std::string::npos) versions += ", " + file;
  }
  return versions;
}

std::string decoder_probe() {
  io::Sha256 hash;
  for (const std::string_view picture :
       {kBaselineJpeg, kProgressiveJpeg, kLossyWebp, kWideGamutPng}) {
    const std::vector<std::byte> bytes = decode_base64(picture);
    const RgbImage image = decode(bytes, {});
    hash.update(std::as_bytes(std::span(image.pixels)));
  }
  constexpr std::size_t kDigits = 16;
  return hash.hex_digest().substr(0, kDigits);
}

}  // namespace caravan::image
