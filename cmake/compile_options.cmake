# How our own targets are compiled, whatever the parent project asks for.

# The bits of the results depend on these. They come last on the command line,
# so they win over a parent's -ffast-math or -Ofast.
set(FUSEDNORM_FLOAT_OPTIONS
  -fno-fast-math
  -fno-unsafe-math-optimizations
  -fno-associative-math
  -fno-reciprocal-math
  -fno-finite-math-only
  -fsigned-zeros
  -fno-math-errno
  -ffp-contract=off  # After -fno-fast-math, which resets it in Clang.
)

function(fusednorm_compile_options target)
  target_compile_features(${target} PRIVATE cxx_std_17)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE ${FUSEDNORM_FLOAT_OPTIONS})
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(${target} PRIVATE
      -Wall -Wextra -Wshadow -Wconversion)
  endif()
  if(FUSEDNORM_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
