# The installed library: headers, archives, a CMake package, a pkg-config file.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fusednorm)
install(DIRECTORY include/fusednorm TYPE INCLUDE)

# One export set for each kind: a user of the shared library alone need not
# have what the static one depends on.
foreach(kind shared static)
  if(TARGET fusednorm_${kind})
    install(TARGETS fusednorm_${kind} EXPORT fusednorm_${kind}
      INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(EXPORT fusednorm_${kind}
      NAMESPACE fusednorm::
      FILE fusednorm-${kind}-targets.cmake
      DESTINATION ${package_dir})
  endif()
endforeach()
if(TARGET fusednorm_static AND FUSEDNORM_BUNDLED_HIGHWAY)
  install(TARGETS hwy EXPORT fusednorm_static)
endif()

configure_package_config_file(
  cmake/fusednorm-config.cmake.in fusednorm-config.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break its users.
write_basic_package_version_file(fusednorm-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/fusednorm-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/fusednorm-config-version.cmake
  DESTINATION ${package_dir})

# pkg-config: what the static library needs on top, as linker options.
if(FUSEDNORM_BUNDLED_HIGHWAY)
  set(private_libs -lfusednorm_hwy)
else()
  set(private_libs -lhwy)
endif()
if(FUSEDNORM_OPENMP)
  list(APPEND private_libs ${OpenMP_CXX_FLAGS})
endif()
list(APPEND private_libs -lstdc++ -lm -pthread)
list(JOIN private_libs " " FUSEDNORM_PC_LIBS_PRIVATE)
# The prefix follows the file, so that the installed tree can be moved.
file(RELATIVE_PATH FUSEDNORM_PC_PREFIX
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" FUSEDNORM_PC_PREFIX "${FUSEDNORM_PC_PREFIX}")
configure_file(cmake/fusednorm.pc.in fusednorm.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/fusednorm.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
