// host PLUGIN: loads the plugin and compares it with the host's own library.
// Loading must leave the floating-point environment as it was.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "fusednorm/c.h"

#ifdef __x86_64__
#include <xmmintrin.h>
static unsigned Environment() { return _mm_getcsr(); }
#else
static unsigned Environment() { return 0; }
#endif

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const unsigned before = Environment();
  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  if (Environment() != before) {
    std::fprintf(stderr, "loading changed the environment\n");
    return 1;
  }
  int (*norm)(const float*, float*, int64_t, int64_t) = nullptr;
  void* symbol = dlsym(plugin, "plugin_norm");
  std::memcpy(&norm, &symbol, sizeof(norm));
  if (norm == nullptr) return 1;

  const float x[2][3] = {{1, 2, 3}, {-4, 5, 6}};
  float theirs[2][3], ours[2][3];
  if (norm(x[0], theirs[0], 2, 3) != 0) return 1;
  if (fusednorm_rms_norm_f32(x[0], nullptr, ours[0], 2, 3, 0.0f) != 0) return 1;
  return std::memcmp(theirs, ours, sizeof(ours)) != 0;
}
