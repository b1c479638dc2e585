// SPDX-License-Identifier: Apache-2.0
//
// Operations on many names in one process, where a shell would need a process for each.
//  names create FOLDER COUNT: creates COUNT empty files.
//  names rename FROM TO COUNT: renames FROM/0 to TO/x, FROM/1 to TO/x and so on to FROM/COUNT.
//  names link FILE FOLDER COUNT: makes COUNT further links to FILE, FOLDER/1 to FOLDER/COUNT.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kPath = 512 };

static int fail(const char* what) {
  fprintf(stderr, "names: %s: %s\n", what, strerror(errno));
  return 1;
}

static int create(const char* folder, int count) {
  char path[kPath];
  for (int i = 1; i <= count; ++i) {
    snprintf(path, sizeof path, "%s/file-with-a-rather-long-name-%d", folder, i);
    const int file = open(path, O_WRONLY | O_CREAT, 0644);
    if (file < 0 || close(file) != 0) return fail(path);
  }
  return 0;
}

static int rename_to_and_fro(const char* from, const char* to, int count) {
  char here[kPath], there[kPath];
  snprintf(there, sizeof there, "%s/x", to);
  for (int i = 0; i < count; ++i) {
    snprintf(here, sizeof here, "%s/%d", from, i);
    if (rename(here, there) != 0) return fail(here);
    snprintf(here, sizeof here, "%s/%d", from, i + 1);
    if (rename(there, here) != 0) return fail(here);
  }
  return 0;
}

static int link_often(const char* file, const char* folder, int count) {
  char path[kPath];
  for (int i = 1; i <= count; ++i) {
    snprintf(path, sizeof path, "%s/%d", folder, i);
    if (link(file, path) != 0) return fail(path);
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "create") == 0) return create(argv[2], atoi(argv[3]));
  if (argc == 5 && strcmp(argv[1], "rename") == 0) return rename_to_and_fro(argv[2], argv[3], atoi(argv[4]));
  if (argc == 5 && strcmp(argv[1], "link") == 0) return link_often(argv[2], argv[3], atoi(argv[4]));
  fprintf(stderr, "usage: names create FOLDER COUNT | rename FROM TO COUNT | link FILE FOLDER COUNT\n");
  return 2;
}
