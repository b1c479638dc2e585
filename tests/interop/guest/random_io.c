// SPDX-License-Identifier: Apache-2.0
//
//  random_io FILE SECONDS SEED
//
// Reads, writes, truncates, maps and reopens one file at random and compares each result with a copy in
// memory, until the time is over or SIGTERM arrives. Prints the operations done; exits with 1 at the first
// difference.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { kMaxFile = 3 << 20, kMaxIo = 300 * 1024 };

static unsigned char model[kMaxFile];
static unsigned char buffer[kMaxIo];
static off_t size;
static int file = -1;
static const char* path;
static volatile sig_atomic_t stop_requested;

static void end_soon(int signal) {
  (void)signal;
  stop_requested = 1;
}

static void fail(const char* what) {
  fprintf(stderr, "random_io: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void compare(off_t at, const unsigned char* got, size_t bytes, const char* how) {
  for (size_t i = 0; i < bytes; ++i)
    if (got[i] != model[at + (off_t)i]) {
      fprintf(stderr, "random_io: %s at %lld: byte %lld is %02x, not %02x\n", how, (long long)at,
              (long long)(at + (off_t)i), got[i], model[at + (off_t)i]);
      exit(1);
    }
}

static void open_file(int extra) {
  if (file >= 0 && close(file) != 0) fail("close");
  file = open(path, O_RDWR | O_CREAT | extra, 0644);
  if (file < 0) fail("open");
}

static void do_write(void) {
  off_t at = random() % (kMaxFile - kMaxIo);
  size_t bytes = 1 + (size_t)random() % (random() % 4 == 0 ? kMaxIo : 8192);
  for (size_t i = 0; i < bytes; ++i) buffer[i] = (unsigned char)random();
  if (pwrite(file, buffer, bytes, at) != (ssize_t)bytes) fail("write");
  if (at > size) memset(model + size, 0, (size_t)(at - size));
  memcpy(model + at, buffer, bytes);
  if (at + (off_t)bytes > size) size = at + (off_t)bytes;
}

static void do_read(void) {
  if (size == 0) return;
  off_t at = random() % size;
  size_t bytes = 1 + (size_t)random() % kMaxIo;
  size_t expected = at + (off_t)bytes > size ? (size_t)(size - at) : bytes;
  if (pread(file, buffer, bytes, at) != (ssize_t)expected) fail("read");
  compare(at, buffer, expected, "read");
}

static void do_truncate(void) {
  off_t to = random() % kMaxFile;
  if (ftruncate(file, to) != 0) fail("truncate");
  if (to > size) memset(model + size, 0, (size_t)(to - size));
  size = to;
}

static void do_map(void) {
  if (size < 4096) return;
  off_t at = random() % size & ~(off_t)4095;
  size_t bytes = (size_t)(size - at) > 65536 ? 65536 : (size_t)(size - at);
  unsigned char* map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);
  if (map == MAP_FAILED) fail("mmap");
  compare(at, map, bytes, "mapping");
  for (int i = 0; i < 50; ++i) {
    size_t where = (size_t)random() % bytes;
    map[where] = model[at + (off_t)where] = (unsigned char)random();
  }
  if (msync(map, bytes, MS_SYNC) != 0) fail("msync");
  munmap(map, bytes);
}

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "usage: random_io FILE SECONDS SEED\n"), 2;
  path = argv[1];
  srandom((unsigned)atoi(argv[3]));
  // Without SA_RESTART a system call would fail with EINTR, which is not a difference of the file.
  const struct sigaction action = {.sa_handler = end_soon, .sa_flags = SA_RESTART};
  sigaction(SIGTERM, &action, NULL);
  open_file(O_TRUNC);
  const time_t end = time(NULL) + atoi(argv[2]);
  unsigned long count[5] = {0};
  while (!stop_requested && time(NULL) < end) {
    switch (random() % 16) {
      case 0:
        do_truncate();
        ++count[2];
        break;
      case 1:
        do_map();
        ++count[3];
        break;
      case 2:
        open_file(0);
        ++count[4];
        break;
      default:
        if (random() % 2) {
          do_write();
          ++count[0];
        } else {
          do_read();
          ++count[1];
        }
    }
  }
  struct stat found;
  if (fstat(file, &found) != 0 || found.st_size != size) fail("size");
  printf("%lu writes, %lu reads, %lu truncations, %lu mappings, %lu reopenings\n", count[0], count[1],
         count[2], count[3], count[4]);
  return close(file) == 0 ? 0 : 1;
}
