/* A stand-in for libnvidia-ml.so.1. The scene is a text file (NVML_SCENE), read at every call:
   count N | total N | used N | free N | reserved N | proc PID USED | mig 0/1 | slices N | ecc 0/1
   err FUNCTION CODE. KEY.I N: mig and slices of card I. USED may be -1: not available. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long u64;
typedef struct { unsigned pid; u64 used; unsigned gi, ci; } proc_t;
typedef struct { u64 total, free, used; } mem1_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } mem2_t;
static char line[512];
static FILE *scene(void) { const char *p = getenv("NVML_SCENE"); return p ? fopen(p, "r") : 0; }
static long long get(const char *key, long long fallback) {
  FILE *f = scene(); long long v = fallback; size_t n = strlen(key);
  if (!f) return v;
  while (fgets(line, sizeof line, f))
    if (!strncmp(line, key, n) && line[n] == ' ') v = atoll(line + n + 1);
  fclose(f); return v;
}
static int err(const char *fn) { char key[128]; snprintf(key, sizeof key, "err %s", fn); return (int)get(key, 0); }
#define FAIL(fn) do { int e = err(fn); if (e) return e; } while (0)
/* Handles are the names: card i is GPU-000i-stand-in, its slice j MIG-00ij-stand-in. */
static char cards[8][32], parts[8][8][32];
static char *card(unsigned i) { snprintf(cards[i], 32, "GPU-%04u-stand-in", i); return cards[i]; }
static char *part(unsigned i, unsigned j) { snprintf(parts[i][j], 32, "MIG-%02u%u%u-stand-in", 0u, i, j); return parts[i][j]; }
static unsigned number(void *h) { unsigned i = 0; const char *n = h; sscanf(n[0] == 'G' ? n + 4 : n + 6, n[0] == 'G' ? "%4u" : "%1u", &i); return i; }
static long long of(void *h, const char *key, long long fallback) {
  char own[64]; snprintf(own, sizeof own, "%s.%u", key, number(h));
  return get(own, get(key, fallback)); }
int nvmlInit_v2(void) { FAIL("init"); return 0; }
int nvmlInitWithFlags(unsigned f) { (void)f; FAIL("init"); return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { static char b[32]; snprintf(b, sizeof b, "error %d", code); return b; }
int nvmlDeviceGetCount_v2(unsigned *n) { FAIL("count"); *n = (unsigned)get("count", 1); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { if (i >= get("count", 1)) return 2; *h = card(i); return 0; }
int nvmlDeviceGetHandleByUUID(const char *u, void **h) {
  for (unsigned i = 0; i < get("count", 1); i++) {
    if (!strcmp(u, card(i))) { *h = card(i); return 0; }
    for (unsigned j = 0; j < of(card(i), "slices", 0); j++)
      if (!strcmp(u, part(i, j))) { *h = part(i, j); return 0; } }
  return 6; }
int nvmlDeviceGetIndex(void *h, unsigned *i) { *i = number(h); return 0; }
int nvmlDeviceGetName(void *h, char *b, unsigned n) { (void)h; snprintf(b, n, "Stand-in 80GB"); return 0; }
int nvmlDeviceGetUUID(void *h, char *b, unsigned n) { snprintf(b, n, "%s", (const char *)h); return 0; }
int nvmlSystemGetDriverVersion(char *b, unsigned n) { snprintf(b, n, "999.10"); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, mem1_t *m) {
  FAIL("memory_v1"); (void)h;
  m->total = get("total", 0); m->free = get("free", 0); m->used = m->total - m->free; return 0; }
int nvmlDeviceGetMemoryInfo_v2(void *h, mem2_t *m) {
  FAIL("memory_v2"); (void)h;
  if (m->version != (sizeof(mem2_t) | (2u << 24))) return 25;
  m->total = get("total", 0); m->free = get("free", 0); m->used = get("used", 0);
  m->reserved = get("reserved", 0); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, proc_t *out) {
  unsigned have = 0; (void)h; FAIL("processes");
  FILE *f = scene();
  while (f && fgets(line, sizeof line, f)) {
    unsigned pid; long long used;
    if (sscanf(line, "proc %u %lld", &pid, &used) != 2) continue;
    if (have < *n) { out[have].pid = pid; out[have].used = (u64)used; out[have].gi = out[have].ci = ~0u; }
    have++; }
  if (f) fclose(f);
  if (have > *n) { *n = have; return 7; }
  *n = have; return 0; }
int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *later) { FAIL("mig"); if (*(const char *)h == 'M') return 2; *now = *later = (unsigned)of(h, "mig", 0); return 0; }
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *n) { (void)h; *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned i, void **m) { if (i >= of(h, "slices", 0)) return 6; *m = part(number(h), i); return 0; }
int nvmlDeviceGetEccMode(void *h, unsigned *now, unsigned *later) { (void)h; FAIL("ecc"); *now = *later = (unsigned)get("ecc", 1); return 0; }
