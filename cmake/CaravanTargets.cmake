# Functions that every module and test target goes through: flags, third-party include style, labels.

add_library(caravan_flags INTERFACE)
# -ffp-contract=off: the compiler must not choose where a product and a sum are fused; kernels say it themselves.
target_compile_options(caravan_flags INTERFACE -ffp-contract=off -fno-math-errno
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-missing-field-initializers $<$<BOOL:${CARAVAN_WERROR}>:-Werror>)
target_compile_definitions(caravan_flags INTERFACE
  OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX FMT_ENFORCE_COMPILE_STRING=0)
target_include_directories(caravan_flags INTERFACE "${CMAKE_SOURCE_DIR}/include")
if(CARAVAN_SANITIZE)
  # GCC reports false ones in its own headers when the sanitizers' checks stand between (std::regex).
  target_compile_options(caravan_flags INTERFACE -Wno-maybe-uninitialized)
  target_compile_options(caravan_flags INTERFACE -fsanitize=${CARAVAN_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(caravan_flags INTERFACE -fsanitize=${CARAVAN_SANITIZE})
endif()

# caravan_add_module(NAME SOURCES a.cpp ... DEPENDS core ... LIBRARIES imported::target ...)
# A static library caravan_NAME. DEPENDS are modules (design table), LIBRARIES third-party targets; both PUBLIC because
# headers name types of lower modules and of ATen.
function(caravan_add_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  add_library(caravan_${name} STATIC ${arg_SOURCES})
  target_link_libraries(caravan_${name} PUBLIC caravan_flags)
  foreach(dependency ${arg_DEPENDS})
    target_link_libraries(caravan_${name} PUBLIC caravan_${dependency})
  endforeach()
  target_link_libraries(caravan_${name} PUBLIC ${arg_LIBRARIES})
endfunction()

# For tests that start a launcher. Open MPI keeps memory until the end, so leaks are looked for in the other tests only.
set(CARAVAN_MPI_TEST_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0)

# caravan_add_test(NAME LABEL unit SOURCES ... MODULES text ... [LIBRARIES ...] [RANKS 1 2 3 4] [TIMEOUT s] [ARGS ...])
# One GoogleTest executable. Without RANKS it runs as one process; with RANKS it has its own MPI main (tests/support)
# and runs once for each number of ranks.
function(caravan_add_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SOURCES;MODULES;LIBRARIES;RANKS;ARGS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(CARAVAN_SANITIZE)
    math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}") # the checks cost about that
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE caravan_test_support caravan_flags)
  foreach(module ${arg_MODULES})
    target_link_libraries(${name} PRIVATE caravan_${module})
  endforeach()
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  target_compile_definitions(${name} PRIVATE CARAVAN_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
    CARAVAN_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(arg_RANKS)
    target_link_libraries(${name} PRIVATE caravan_mpi_test_main)
    foreach(ranks ${arg_RANKS})
      add_test(NAME ${name}_${ranks} COMMAND ${CARAVAN_MPIEXEC} -n ${ranks} ${CARAVAN_MPIEXEC_FLAGS}
        $<TARGET_FILE:${name}> ${arg_ARGS})
      set_tests_properties(${name}_${ranks} PROPERTIES LABELS "${arg_LABEL}" TIMEOUT ${arg_TIMEOUT}
        PROCESSORS ${ranks} ENVIRONMENT "${CARAVAN_MPI_TEST_ENVIRONMENT}")
    endforeach()
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND $<TARGET_FILE:${name}> ${arg_ARGS})
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABEL}" TIMEOUT ${arg_TIMEOUT})
  endif()
endfunction()
