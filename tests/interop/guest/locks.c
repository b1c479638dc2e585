// SPDX-License-Identifier: Apache-2.0
//
//  locks fcntl|flock FILE BYTE hold SECONDS: holds an exclusive lock for SECONDS; prints "held" first.
//  locks fcntl|flock FILE BYTE try:          exits with 0 if the lock is free, with 2 if it is held.
//  locks fcntl|flock FILE BYTE wait:         waits for the lock, then prints "had".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int take(const char* kind, int fd, off_t at, int wait) {
  if (strcmp(kind, "flock") == 0) return flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB));
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
  return fcntl(fd, wait ? F_SETLKW : F_SETLK, &lock);
}

int main(int argc, char** argv) {
  if (argc < 5) return 1;
  const int fd = open(argv[2], O_RDWR | O_CREAT, 0666);
  if (fd < 0) return perror(argv[2]), 1;
  const int wait = strcmp(argv[4], "try") != 0;
  if (take(argv[1], fd, atol(argv[3]), wait) != 0) {
    if (!wait && (errno == EAGAIN || errno == EACCES || errno == EWOULDBLOCK)) return 2;
    return perror("lock"), 1;
  }
  puts(strcmp(argv[4], "hold") == 0 ? "held" : "had");
  fflush(stdout);
  if (argc > 5) sleep((unsigned)atoi(argv[5]));
  return 0;
}
