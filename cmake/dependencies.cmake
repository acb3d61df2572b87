# What the library links: Highway, threads, and OpenMP unless it is left out.
#
# Highway is, in this order: a target of the parent project, a source tree or
# an archive that the user names, the installed package, a pinned download.

set(FUSEDNORM_HIGHWAY_MINIMUM 1.0.3)
set(FUSEDNORM_HIGHWAY_SOURCE_DIR "" CACHE PATH
    "Highway source tree to build; empty: look for the package")
set(FUSEDNORM_HIGHWAY_URL "" CACHE STRING
    "Highway archive to build; empty: look for the package")
set(FUSEDNORM_HIGHWAY_SHA256 "" CACHE STRING
    "SHA-256 of FUSEDNORM_HIGHWAY_URL")
mark_as_advanced(FUSEDNORM_HIGHWAY_SOURCE_DIR FUSEDNORM_HIGHWAY_URL
                 FUSEDNORM_HIGHWAY_SHA256)

function(fusednorm_check_highway version where)
  if(version VERSION_LESS FUSEDNORM_HIGHWAY_MINIMUM)
    message(FATAL_ERROR
      "fusednorm needs Highway ${FUSEDNORM_HIGHWAY_MINIMUM} or newer, but "
      "found ${version} in ${where}. Install a newer one, or let "
      "-DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON download one.")
  endif()
  message(STATUS "fusednorm: Highway ${version} (${where})")
endfunction()

# Reads HWY_MAJOR, HWY_MINOR and HWY_PATCH, which moved from highway.h to
# base.h in 1.1.
function(fusednorm_highway_version source_dir result)
  set(version "")
  foreach(part MAJOR MINOR PATCH)
    set(number 0)
    foreach(header base.h highway.h)
      if(EXISTS ${source_dir}/hwy/${header})
        file(STRINGS ${source_dir}/hwy/${header} line
             REGEX "^#define HWY_${part} [0-9]+")
        if(line MATCHES "([0-9]+)")
          set(number ${CMAKE_MATCH_1})
        endif()
      endif()
    endforeach()
    list(APPEND version ${number})
  endforeach()
  list(JOIN version . version)
  set(${result} ${version} PARENT_SCOPE)
endfunction()

# Makes hwy::hwy from sources: static, position independent, nothing but the
# library. A function, so that what it sets stays in here.
function(fusednorm_build_highway source_dir)
  fusednorm_highway_version(${source_dir} version)
  fusednorm_check_highway(${version} ${source_dir})
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # Variables set here win over its
  set(CMAKE_POLICY_DEFAULT_CMP0126 NEW)  # options and cache entries.
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(HWY_FORCE_STATIC_LIBS ON)
  set(HWY_ENABLE_CONTRIB OFF)
  set(HWY_ENABLE_EXAMPLES OFF)
  set(HWY_ENABLE_INSTALL OFF)
  set(HWY_ENABLE_TESTS OFF)
  add_subdirectory(${source_dir} ${CMAKE_CURRENT_BINARY_DIR}/highway
                   EXCLUDE_FROM_ALL SYSTEM)
  add_library(hwy::hwy ALIAS hwy)
  # Its own name, since it is installed beside our archive and must not stand
  # in the way of another libhwy.
  set_target_properties(hwy PROPERTIES
    OUTPUT_NAME fusednorm_hwy
    EXPORT_NAME hwy
    INTERFACE_INCLUDE_DIRECTORIES $<BUILD_INTERFACE:${source_dir}>)
endfunction()

# Unpacks the archive that the user names, or else the pinned release.
function(fusednorm_unpack_highway result)
  set(url https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz)
  set(sha256 7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343)
  if(FUSEDNORM_HIGHWAY_URL)
    set(url ${FUSEDNORM_HIGHWAY_URL})
    set(sha256 "${FUSEDNORM_HIGHWAY_SHA256}")
  endif()
  if(NOT sha256)
    message(FATAL_ERROR
      "FUSEDNORM_HIGHWAY_URL needs its FUSEDNORM_HIGHWAY_SHA256.")
  endif()
  include(FetchContent)
  FetchContent_Declare(fusednorm_highway
    URL ${url}
    URL_HASH SHA256=${sha256}
    DOWNLOAD_EXTRACT_TIMESTAMP ON
    SOURCE_SUBDIR none)  # There is none: unpack, add nothing.
  FetchContent_MakeAvailable(fusednorm_highway)
  set(${result} ${fusednorm_highway_SOURCE_DIR} PARENT_SCOPE)
endfunction()

# Whether hwy::hwy is built here and so has to be installed with us.
set(FUSEDNORM_BUNDLED_HIGHWAY OFF)
set(highway_source_dir "${FUSEDNORM_HIGHWAY_SOURCE_DIR}")
if(TARGET hwy AND NOT TARGET hwy::hwy)
  add_library(hwy::hwy ALIAS hwy)
endif()
if(NOT TARGET hwy::hwy AND NOT highway_source_dir AND NOT FUSEDNORM_HIGHWAY_URL)
  find_package(hwy CONFIG QUIET)
  if(hwy_FOUND)
    fusednorm_check_highway(${hwy_VERSION} ${hwy_DIR})
  endif()
endif()
if(NOT TARGET hwy::hwy)
  set(FUSEDNORM_BUNDLED_HIGHWAY ON)
  if(NOT highway_source_dir)
    fusednorm_unpack_highway(highway_source_dir)
  endif()
  fusednorm_build_highway(${highway_source_dir})
endif()

find_package(Threads REQUIRED)
set(FUSEDNORM_DEPENDENCIES hwy::hwy Threads::Threads)
if(FUSEDNORM_OPENMP)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  list(APPEND FUSEDNORM_DEPENDENCIES OpenMP::OpenMP_CXX)
endif()
