# Finds LibTorch without its own CMake package, which insists on nvcc even for CPU builds.
#
#   LibTorch_ROOT         hint: a folder with include/ and lib/ (the wheel's site-packages/torch, or a site's LibTorch)
# Result: targets libtorch::cpu and, where the library has it, libtorch::cuda; LibTorch_VERSION; LibTorch_LIBRARY_DIRS
# (for run paths: LibTorch's own folder and the CUDA wheels beside it).
find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h PATH_SUFFIXES include)
find_library(LibTorch_c10 c10 PATH_SUFFIXES lib)
find_library(LibTorch_cpu torch_cpu PATH_SUFFIXES lib)
find_library(LibTorch_cuda torch_cuda PATH_SUFFIXES lib)
find_library(LibTorch_c10_cuda c10_cuda PATH_SUFFIXES lib)
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_c10 LibTorch_cpu LibTorch_cuda LibTorch_c10_cuda)

foreach(_header torch/headeronly/version.h torch/version.h torch/csrc/api/include/torch/version.h)
  if(LibTorch_INCLUDE_DIR AND EXISTS "${LibTorch_INCLUDE_DIR}/${_header}")
    file(STRINGS "${LibTorch_INCLUDE_DIR}/${_header}" _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    if(_lines)
      string(REGEX REPLACE ".*MAJOR ([0-9]+).*" "\\1" _major "${_lines}")
      string(REGEX REPLACE ".*MINOR ([0-9]+).*" "\\1" _minor "${_lines}")
      string(REGEX REPLACE ".*PATCH ([0-9]+).*" "\\1" _patch "${_lines}")
      set(LibTorch_VERSION "${_major}.${_minor}.${_patch}")
      break()
    endif()
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_cpu LibTorch_c10 LibTorch_INCLUDE_DIR VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "set LibTorch_ROOT to the torch folder of the PyPI wheel (jobs/install-dependencies.sh puts it in .deps) or add a LibTorch to CMAKE_PREFIX_PATH")

if(LibTorch_FOUND AND NOT TARGET libtorch::cpu)
  get_filename_component(_lib "${LibTorch_cpu}" DIRECTORY)
  file(GLOB _wheels "${_lib}/../../nvidia/*/lib")
  set(LibTorch_LIBRARY_DIRS "${_lib}" ${_wheels})
  add_library(libtorch::cpu SHARED IMPORTED)
  set_target_properties(libtorch::cpu PROPERTIES IMPORTED_LOCATION "${LibTorch_cpu}")
  target_include_directories(libtorch::cpu SYSTEM INTERFACE "${LibTorch_INCLUDE_DIR}")
  target_link_libraries(libtorch::cpu INTERFACE "${LibTorch_c10}")
  # The wheel's libraries name CUDA libraries that a CPU build neither needs nor has at link time.
  target_link_options(libtorch::cpu INTERFACE LINKER:--allow-shlib-undefined)
  if(LibTorch_cuda AND LibTorch_c10_cuda)
    add_library(libtorch::cuda INTERFACE IMPORTED)
    # Operators register themselves in static constructors: keep the library although nothing names a symbol of it.
    target_link_libraries(libtorch::cuda INTERFACE libtorch::cpu
      "-Wl,--push-state,--no-as-needed" "${LibTorch_cuda}" "-Wl,--pop-state" "${LibTorch_c10_cuda}")
  endif()
endif()
