# Finds LibTorch without its own CMake package, which insists on nvcc even for CPU builds.
#
#   LibTorch_ROOT         a folder with include/ and lib/: a site's LibTorch, or site-packages/torch of the wheel
#   CMAKE_PREFIX_PATH     searched next, as always
#   LibTorch_HINTS        searched after both: the project's own copy
# Result: targets libtorch::cpu and, where the library has it, libtorch::cuda; LibTorch_VERSION; LibTorch_LIBRARY_DIRS
# (for run paths: LibTorch's own folder and the CUDA wheels beside it).
find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h HINTS ${LibTorch_HINTS} PATH_SUFFIXES include)
# Libraries and headers must be of one LibTorch: those of its own prefix only.
get_filename_component(_prefix "${LibTorch_INCLUDE_DIR}" DIRECTORY)
foreach(_library c10 torch_cpu torch_cuda c10_cuda)
  string(REPLACE "torch_" "" _name "${_library}")
  find_library(LibTorch_${_name} ${_library} PATHS "${_prefix}/lib" "${_prefix}/lib64"
    "${_prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE}" NO_DEFAULT_PATH)
endforeach()
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
  REASON_FAILURE_MESSAGE "set LibTorch_ROOT to the torch folder of the PyPI wheel (jobs/install-libtorch.sh puts it in .deps) or add a LibTorch to CMAKE_PREFIX_PATH")

if(LibTorch_FOUND AND NOT TARGET libtorch::cpu)
  get_filename_component(_lib "${LibTorch_cpu}" DIRECTORY)
  file(GLOB _wheels "${_lib}/../../nvidia/*/lib")
  set(LibTorch_LIBRARY_DIRS "${_lib}" ${_wheels})
  add_library(libtorch::cpu SHARED IMPORTED)
  set_target_properties(libtorch::cpu PROPERTIES IMPORTED_LOCATION "${LibTorch_cpu}")
  # After the system's folders: the wheel brings headers of other libraries along (fmt among them), and those would hide
  # the installed ones that we link with.
  target_compile_options(libtorch::cpu INTERFACE "SHELL:-idirafter ${LibTorch_INCLUDE_DIR}")
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
