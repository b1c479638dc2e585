// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dataplane/base/file_descriptor.h"

namespace sluice::card_check {
namespace {

using Clock = std::chrono::steady_clock;

/// Time that the kernel has to end a killed process.
constexpr std::chrono::seconds kKillLimit{5};

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
  FileDescriptor reader;
  FileDescriptor writer;
};

/// Executes the program in a new process. Uses only functions that are safe after fork().
[[noreturn]] void become(char* const* arguments, int messages, int errors, int descriptor) noexcept {
  // Each pipe is moved above the descriptors that are replaced.
  const int from_messages = ::fcntl(messages, F_DUPFD_CLOEXEC, 10);
  const int from_errors = ::fcntl(errors, F_DUPFD_CLOEXEC, 10);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(from_errors, STDOUT_FILENO);
  ::dup2(from_errors, STDERR_FILENO);
  ::dup2(from_messages, descriptor);
  ::execvp(arguments[0], arguments);
  ::_exit(127);
}

/// Reads what the pipe has. Returns false at its end.
bool take(const FileDescriptor& from, std::string& into) {
  char bytes[4096];
  const ssize_t count = ::read(from.get(), bytes, sizeof bytes);
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  const std::size_t room = kMaxOutputBytes - into.size();
  into.append(bytes, std::min(room, static_cast<std::size_t>(count)));
  return count > 0;
}

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::max<long>(0, static_cast<long>(left)));
}

/// Reads both pipes until they end. Returns false at the deadline.
bool read_all(Pipe& messages, Pipe& errors, Ended& ended, Clock::time_point end) {
  bool open[2] = {true, true};
  while (open[0] || open[1]) {
    pollfd ready[2] = {{.fd = open[0] ? messages.reader.get() : -1, .events = POLLIN, .revents = 0},
                       {.fd = open[1] ? errors.reader.get() : -1, .events = POLLIN, .revents = 0}};
    const int count = ::poll(ready, 2, milliseconds_until(end));
    if (count == 0) return false;
    if (count < 0) continue;
    if (ready[0].revents != 0) open[0] = take(messages.reader, ended.messages);
    if (ready[1].revents != 0) open[1] = take(errors.reader, ended.errors);
  }
  return true;
}

/// Waits for the end of the process. Returns false at the deadline.
bool await(pid_t process, Ended& ended, Clock::time_point end) {
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  int status = 0;
  for (pid_t got = 0; (got = ::waitpid(process, &status, WNOHANG)) != process; ::nanosleep(&kPause, nullptr))
    if (Clock::now() >= end || (got < 0 && errno != EINTR)) return false;
  ended.how = WIFSIGNALED(status) ? Ended::How::Signaled : Ended::How::Exited;
  ended.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

}  // namespace

Ended run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds limit,
                  int descriptor) {
  Ended ended;
  const auto start = Clock::now();
  Pipe messages;
  Pipe errors;
  std::vector<char*> words;
  words.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t process = messages.writer && errors.writer ? ::fork() : -1;
  if (process < 0) return ended;
  if (process == 0) become(words.data(), messages.writer.get(), errors.writer.get(), descriptor);
  messages.writer.reset();
  errors.writer.reset();
  const auto end = start + limit;
  if (!read_all(messages, errors, ended, end) || !await(process, ended, end)) {
    ::kill(process, SIGKILL);
    const bool dead = await(process, ended, Clock::now() + kKillLimit);
    ended.how = dead ? Ended::How::TimedOut : Ended::How::Stuck;
  }
  ended.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return ended;
}

std::string describe(const Ended& ended) {
  switch (ended.how) {
    case Ended::How::Exited:
      return "exited with status " + std::to_string(ended.code);
    case Ended::How::Signaled: {
      const char* const name = ::sigabbrev_np(ended.code);
      return "was ended by signal " +
             (name != nullptr ? "SIG" + std::string(name) : std::to_string(ended.code));
    }
    case Ended::How::TimedOut:
      return "was killed at its deadline";
    case Ended::How::Stuck:
      return "does not end, because a system call of the device's driver does not return";
    case Ended::How::NotStarted:
      return "could not be started";
  }
  return {};
}

}  // namespace sluice::card_check
