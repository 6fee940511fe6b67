# Fails if an object compiled for a wide instruction set defines a function that the linker could take for another
# object's (weak or unique symbols): it would then run on CPUs without those instructions.
#
#   cmake -DNM=nm -DOBJECTS=a.o,b.o -P check_kernel_symbols.cmake
string(REPLACE "," ";" objects "${OBJECTS}")
foreach(object ${objects})
  execute_process(COMMAND "${NM}" --defined-only "${object}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" shared "${symbols}")
  list(FILTER shared EXCLUDE REGEX "DW\\.ref\\.")
  if(shared)
    message(FATAL_ERROR "${object} defines symbols that another build could be linked to: ${shared}")
  endif()
  if(NOT symbols MATCHES "Kernels")
    message(FATAL_ERROR "${object} defines no kernel table: is it the right object?")
  endif()
endforeach()
