// SPDX-License-Identifier: Apache-2.0
//
//  once DIRECTORY SEED DOUBT PROGRESS [LOCKED PROBED]
//
// Creates, removes, renames and links names of an empty directory at random until SIGTERM, and compares each
// result and the directory with a model in memory. Every operation here fails, or does harm, when it is
// executed twice. LOCKED is a file whose bytes it locks and unlocks; PROBED is the path of that file on
// another mount, used to query the server's locks. At the end it prints the contents of the directory; it
// exits with 1 at the first difference.
//
// DOUBT is a file with a number. The number is odd while a process that caches replies is killed and
// restarted, and has another value afterwards. An operation during which the number was odd or changed may
// have been executed by one process and answered by its successor, which has no record of the operation. Only
// then "exists already" and "does not exist" are accepted, if the directory is in the state after a success.
// PROGRESS receives the number of operations done.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kNames = 12, kLocks = 8, kIdBytes = 9, kScanEvery = 50 };

enum Kind { kAbsent, kFile, kDirectory };
struct Entry {
  enum Kind kind;
  unsigned id;  // of a file; also its content, to identify it after link and rename
};

static struct Entry model[kNames];
static int held[kLocks];
static unsigned next_id = 1;
static int directory, doubt, progress, locked = -1;
static const char* probed;
static unsigned long done, refused, doubtful, scans;
static volatile sig_atomic_t stop_requested;

static void end_soon(int signal) {
  (void)signal;
  stop_requested = 1;
}

static void fail(const char* operation, const char* what) {
  fprintf(stderr, "once: operation %lu: %s: %s\n", done, operation, what);
  exit(1);
}

static void fail_with_error(const char* operation, int error) {
  fail(operation, strerror(error));
}

static long number_of_doubts(void) {
  char text[16] = "";
  if (pread(doubt, text, sizeof text - 1, 0) <= 0) fail_with_error("read DOUBT", errno);
  return atol(text);
}

static const char* name_of(int i) {
  static char names[kNames][16];
  if (names[i][0] == 0) snprintf(names[i], sizeof names[i], "n%d", i);
  return names[i];
}

// --- State of the directory

static unsigned read_id(const char* name) {
  char text[kIdBytes + 1] = "";
  const int file = openat(directory, name, O_RDONLY);
  if (file < 0) fail_with_error(name, errno);
  if (read(file, text, kIdBytes) < 0) fail_with_error(name, errno);
  close(file);
  return (unsigned)atol(text);
}

static void write_id(const char* name, int file, unsigned id) {
  char text[kIdBytes + 1];
  snprintf(text, sizeof text, "%08u\n", id);
  if (write(file, text, kIdBytes) != kIdBytes || close(file) != 0) fail_with_error(name, errno);
}

static struct Entry look(const char* name) {
  struct stat found;
  if (fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) fail_with_error(name, errno);
    return (struct Entry){kAbsent, 0};
  }
  if (S_ISDIR(found.st_mode)) return (struct Entry){kDirectory, 0};
  return (struct Entry){kFile, read_id(name)};
}

// Fetches the attributes of the directory, so that the client looks up names again whose cache it did not
// invalidate because its operation returned an error.
static void revalidate(void) {
  struct statx found;
  if (statx(directory, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &found) != 0)
    fail_with_error("statx", errno);
}

static int is(const char* name, struct Entry expected) {
  const struct Entry found = look(name);
  return found.kind == expected.kind && found.id == expected.id;
}

static void scan(void) {
  int entries = 0, expected = 0;
  DIR* listing = fdopendir(openat(directory, ".", O_RDONLY | O_DIRECTORY));
  if (listing == NULL) fail_with_error("opendir", errno);
  errno = 0;
  for (const struct dirent* entry; (entry = readdir(listing)) != NULL; errno = 0)
    if (entry->d_name[0] != '.') ++entries;
  if (errno != 0) fail_with_error("readdir", errno);
  closedir(listing);
  for (int i = 0; i < kNames; ++i) {
    if (!is(name_of(i), model[i])) fail(name_of(i), "is not what the model has");
    expected += model[i].kind != kAbsent;
  }
  if (entries != expected) fail("scan", "the directory has other names than the model");
  ++scans;
}

// --- Operations: the result by the model, the result by the system, and the state afterwards

struct Change {
  int a, b;  // names; b is -1 if there is only one
  struct Entry after_a, after_b;
};

// Compares a result with the model. `repeated` is the error of an operation that has been executed before.
static void settle(const char* operation, int result, int expected, int repeated, long doubts,
                   const struct Change* change) {
  const int error = result == 0 ? 0 : errno;
  if (error != expected) {
    const long now = number_of_doubts();
    if (expected != 0 || error != repeated || (now == doubts && now % 2 == 0)) {
      char text[120];
      snprintf(text, sizeof text, "%s n%d n%d: %s, not %s; doubts %ld, %ld", operation, change->a, change->b,
               strerror(error), strerror(expected), doubts, now);
      fail(operation, text);
    }
    revalidate();
    if (!is(name_of(change->a), change->after_a) ||
        (change->b >= 0 && !is(name_of(change->b), change->after_b))) {
      const struct Entry a = look(name_of(change->a));
      const struct Entry b = change->b >= 0 ? look(name_of(change->b)) : change->after_b;
      char text[160];
      snprintf(text, sizeof text, "%s, but n%d is %d %u, not %d %u, and n%d is %d %u, not %d %u",
               strerror(error), change->a, a.kind, a.id, change->after_a.kind, change->after_a.id, change->b,
               b.kind, b.id, change->after_b.kind, change->after_b.id);
      fail(operation, text);
    }
    ++doubtful;
  }
  ++done;
  if (expected != 0) {
    ++refused;
    return;
  }
  model[change->a] = change->after_a;
  if (change->b >= 0) model[change->b] = change->after_b;
}

static void create(int a) {
  const char* name = name_of(a);
  // The file is empty until its content is written. A file is also empty if create() reported EEXIST for it
  // although the first attempt succeeded.
  struct Change change = {a, -1, {kFile, 0}, {kAbsent, 0}};
  const long doubts = number_of_doubts();
  int file = openat(directory, name, O_CREAT | O_EXCL | O_WRONLY, 0644);
  const int expected = model[a].kind == kAbsent ? 0 : EEXIST;
  settle("create", file < 0 ? -1 : 0, expected, EEXIST, doubts, &change);
  if (expected != 0) return;
  if (file < 0) file = openat(directory, name, O_WRONLY);
  if (file < 0) fail_with_error("open", errno);
  model[a].id = next_id++;
  write_id(name, file, model[a].id);
}

static void make_directory(int a) {
  const struct Change change = {a, -1, {kDirectory, 0}, {kAbsent, 0}};
  const long doubts = number_of_doubts();
  const int result = mkdirat(directory, name_of(a), 0755);
  settle("mkdir", result, model[a].kind == kAbsent ? 0 : EEXIST, EEXIST, doubts, &change);
}

static void remove_name(int a, int as_directory) {
  const struct Change change = {a, -1, {kAbsent, 0}, {kAbsent, 0}};
  const enum Kind wanted = as_directory ? kDirectory : kFile;
  const int expected = model[a].kind == wanted    ? 0
                       : model[a].kind == kAbsent ? ENOENT
                       : as_directory             ? ENOTDIR
                                                  : EISDIR;
  const long doubts = number_of_doubts();
  const int result = unlinkat(directory, name_of(a), as_directory ? AT_REMOVEDIR : 0);
  settle(as_directory ? "rmdir" : "unlink", result, expected, ENOENT, doubts, &change);
}

static void rename_name(int a, int b) {
  const int same_file =
      model[a].kind == kFile && model[b].kind == kFile && model[a].id == model[b].id;  // both stay
  const struct Change change = {a, b, same_file ? model[a] : (struct Entry){kAbsent, 0}, model[a]};
  int expected = 0;
  if (model[a].kind == kAbsent)
    expected = ENOENT;
  else if (model[b].kind != kAbsent && model[a].kind != model[b].kind)
    expected = model[a].kind == kDirectory ? ENOTDIR : EISDIR;
  const long doubts = number_of_doubts();
  const int result = renameat(directory, name_of(a), directory, name_of(b));
  settle("rename", result, expected, ENOENT, doubts, &change);
}

static void link_name(int a, int b) {
  if (model[a].kind == kDirectory && model[b].kind != kAbsent)
    return;  // two errors apply, and clients report either
  const struct Change change = {a, b, model[a], model[a]};
  const int expected = model[a].kind == kAbsent      ? ENOENT
                       : model[b].kind != kAbsent    ? EEXIST
                       : model[a].kind == kDirectory ? EPERM
                                                     : 0;
  const long doubts = number_of_doubts();
  const int result = linkat(directory, name_of(a), directory, name_of(b), 0);
  settle("link", result, expected, EEXIST, doubts, &change);
}

// --- Locks

static int set_lock(int file, int byte, short type) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
  return fcntl(file, F_SETLK, &lock);
}

// The query comes from another process and another mount, whose client has no record of the lock and has to
// query the server.
static int locked_for_others(int byte) {
  const pid_t child = fork();
  if (child < 0) fail_with_error("fork", errno);
  if (child == 0) {
    const int file = open(probed, O_RDWR);
    if (file < 0) _exit(errno);
    if (set_lock(file, byte, F_WRLCK) == 0) _exit(0);
    _exit(errno);
  }
  int status;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail_with_error("waitpid", errno);
  if (!WIFEXITED(status)) fail("probe of a lock", "ended by a signal");
  const int error = WEXITSTATUS(status);
  if (error != 0 && error != EAGAIN && error != EACCES) fail_with_error("probe of a lock", error);
  return error != 0;
}

static void use_lock(int byte) {
  if (random() % 3 == 0) {
    if (locked_for_others(byte) != held[byte])
      fail("probe of a lock", held[byte] ? "it is lost" : "somebody has it");
  } else {
    if (set_lock(locked, byte, held[byte] ? F_UNLCK : F_WRLCK) != 0)
      fail_with_error(held[byte] ? "unlock" : "lock", errno);
    held[byte] = !held[byte];
  }
  ++done;
}

// Returns a random name except `but`: usually one that exists if `present`, else one that does not.
static int pick(int present, int but) {
  const int whatever = random() % 8 == 0;
  for (int i = 0;; ++i) {
    const int name = (int)(random() % kNames);
    if (name != but && (whatever || i > 100 || (model[name].kind != kAbsent) == present)) return name;
  }
}

static void one_operation(void) {
  const int there = pick(1, -1);
  const int nowhere = pick(0, there);
  switch (random() % (locked >= 0 ? 9 : 7)) {
    case 0:
      return create(nowhere);
    case 1:
    case 2:
      return make_directory(nowhere);
    case 3:
    case 4:
      return remove_name(there, random() % 8 == 0 ? (int)(random() % 2) : model[there].kind == kDirectory);
    case 5:
      return rename_name(there, random() % 2 ? nowhere : pick(1, there));
    case 6:
      return link_name(there, nowhere);
    default:
      return use_lock((int)(random() % kLocks));
  }
}

int main(int argc, char** argv) {
  if (argc != 5 && argc != 7)
    return fprintf(stderr, "usage: once DIRECTORY SEED DOUBT PROGRESS [LOCKED PROBED]\n"), 2;
  srandom((unsigned)atoi(argv[2]));
  directory = open(argv[1], O_RDONLY | O_DIRECTORY);
  doubt = open(argv[3], O_RDONLY);
  progress = open(argv[4], O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (directory < 0 || doubt < 0 || progress < 0) fail_with_error("open", errno);
  if (argc == 7) {
    locked = open(argv[5], O_RDWR | O_CREAT, 0644);
    probed = argv[6];
    if (locked < 0) fail_with_error(argv[5], errno);
  }
  // Without SA_RESTART a system call would fail with EINTR, which is not a difference of the directory.
  const struct sigaction action = {.sa_handler = end_soon, .sa_flags = SA_RESTART};
  sigaction(SIGTERM, &action, NULL);
  while (!stop_requested) {
    one_operation();
    if (done % kScanEvery == 0) scan();
    char text[24];
    const int bytes = snprintf(text, sizeof text, "%lu\n", done);
    if (pwrite(progress, text, (size_t)bytes, 0) != bytes) fail_with_error("write PROGRESS", errno);
  }
  scan();
  for (int i = 0; i < kNames; ++i)
    if (model[i].kind != kAbsent)
      printf("%s %s\n", name_of(i), model[i].kind == kFile ? "file" : "directory");
  fprintf(stderr, "once: %lu operations, %lu of them refused as they should be, %lu in doubt, %lu scans\n",
          done, refused, doubtful, scans);
  return 0;
}
