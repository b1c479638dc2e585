// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cli/sluicectl/debug_dump.h"
#include "cli/sluicectl/listing.h"
#include "cli/sluicectl/output_file.h"

namespace sluice::ctl {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kPipeBytes = 1 << 20;
constexpr int kLookMs = 100;
/// Time limit for the data plane's first and last output, and for a reader of our output after the end of the
/// capture.
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::milliseconds kStatusInterval{20};

volatile std::sig_atomic_t interrupted = 0;

/// Installs signal handlers. The first signal ends the capture cleanly, and the second one ends the process.
void end_at_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // without SA_RESTART
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(number, &action, &before);
    if (before.sa_handler == SIG_IGN) ::sigaction(number, &before, nullptr);  // nohup
  }
}

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw std::runtime_error(std::string("Cannot create a pipe (") + std::strerror(errno) +
                               "). Raise the limit of open files.");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    ::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);  // a size above the limit has no effect
  }
  ~Pipe() {
    close_writer();
    ::close(ends[0]);
  }
  void close_writer() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
};

Json parameters_of(const CaptureOptions& options) {
  return {{"seconds", options.seconds}, {"packets", options.packets}, {"bytes", options.mib << 20},
          {"snap", options.snap},       {"peer", options.peer},       {"queue_pair", options.queue_pair}};
}

/// Returns the final status of the capture, which is published before its pipe is closed.
Json final_status(const Client& client, const Json& id) {
  for (const auto end = SteadyClock::now() + kPatience; SteadyClock::now() < end;
       std::this_thread::sleep_for(kStatusInterval)) {
    Json status = client.ask("capture_status");
    if (status.value("id", Json()) != id || status["state"] == "running") continue;
    if (status["state"] == "failed") throw std::runtime_error(status.value("problem", ""));
    return status;
  }
  throw std::runtime_error(
      "The data plane closed the capture without a status. Either it has exited, or another capture started "
      "first ('sluicectl capture --stop' ends that one).");
}

/// Copies the pipe to the output until the data plane closes the pipe.
class Copy {
 public:
  Copy(const Client& client, int from, OutputFile& to, Json id)
      : client_(client), from_(from), to_(to), id_(std::move(id)) {}

  void run() {
    while (!at_end_ || written_ < buffer_.size()) {
      if (interrupted && !stopped_) {
        stopped_ = true;
        progress_ = SteadyClock::now();
        client_.ask("capture_stop", {{"id", id_}});
      }
      if (written_ < buffer_.size())
        pass_on();
      else
        receive();
    }
  }

 private:
  void receive() {
    pollfd readable{from_, POLLIN, 0};
    ::poll(&readable, 1, kLookMs);
    buffer_.resize(kPipeBytes);
    const ssize_t bytes = ::read(from_, buffer_.data(), buffer_.size());
    buffer_.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    written_ = 0;
    at_end_ = bytes == 0;
    if (bytes > 0) {
      begun_ = true;
      progress_ = SteadyClock::now();
    }
    // A capture begins with a header, even without packets.
    if (bytes < 0 && (!begun_ || stopped_) && SteadyClock::now() > progress_ + kPatience)
      throw std::runtime_error(
          "The data plane does not answer. Check with 'sluicectl status' whether it runs.");
  }

  void pass_on() {
    const std::size_t bytes = to_.write(std::span(buffer_).subspan(written_), kLookMs);
    written_ += bytes;
    if (bytes > 0) progress_ = SteadyClock::now();
    if (!no_more_ && writer_gone()) {
      no_more_ = true;
      progress_ = SteadyClock::now();
    }
    if ((no_more_ || stopped_) && SteadyClock::now() > progress_ + kPatience)
      throw std::runtime_error("The end of the capture was lost, because the output was not read.");
  }

  /// Reports whether the data plane has closed its end, even if data is left to read.
  bool writer_gone() const {
    pollfd end{from_, 0, 0};
    return ::poll(&end, 1, 0) > 0 && (end.revents & POLLHUP) != 0;
  }

  const Client& client_;
  const int from_;
  OutputFile& to_;
  const Json id_;
  std::vector<char> buffer_;
  std::size_t written_ = 0;  ///< number of bytes of buffer_ that were written
  bool begun_ = false;
  bool at_end_ = false;
  bool no_more_ = false;  ///< the data plane has closed its end
  bool stopped_ = false;
  SteadyClock::time_point progress_ = SteadyClock::now();
};

}  // namespace

Json capture(const Client& client, const CaptureOptions& options) {
  if (options.stop) {
    const Json status = client.ask("capture_status");
    if (status["state"] != "running") throw std::runtime_error("No capture runs.");
    client.ask("capture_stop", {{"id", status["id"]}});
    return final_status(client, status["id"]);
  }
  if (options.file.empty())
    throw std::runtime_error("Name a file for the packets, or '-' for standard output.");
  OutputFile output(options.file);
  Pipe pipe;
  Json id;
  try {
    id = client.ask("capture_start", parameters_of(options), pipe.ends[1])["id"];
  } catch (...) {
    output.discard();
    throw;
  }
  pipe.close_writer();
  end_at_signals();
  Copy(client, pipe.ends[0], output, id).run();
  output.close();
  return final_status(client, id);
}

namespace {

/// Number of bytes that a writable pipe or FIFO accepts without blocking.
constexpr std::size_t kAtomicPipeBytes = PIPE_BUF;
constexpr std::size_t kFileBytes = 1u << 20;

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (is_standard_output()) {
    fd_ = STDOUT_FILENO;
    if (::isatty(fd_) != 0)
      throw std::runtime_error(
          "Standard output is a terminal. Name a file, or use a pipe ('| tshark -r -').");
  } else {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    created_ = fd_ >= 0;
    struct stat status {};
    if (fd_ < 0 && errno == EEXIST && ::stat(path.c_str(), &status) == 0) {
      if (S_ISREG(status.st_mode))
        throw std::runtime_error(path + " already exists. Name a file that does not exist.");
      fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    }
  }
  struct stat status {};
  if (fd_ < 0 || ::fstat(fd_, &status) != 0)
    throw std::runtime_error("Cannot create " + path + " (" + std::strerror(errno) +
                             "). Name a file that does not exist, in a folder that you may write to.");
  regular_ = S_ISREG(status.st_mode);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0 && !is_standard_output()) ::close(fd_);
}

std::size_t OutputFile::write(std::span<const char> bytes, int timeout_ms) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    pollfd ready{fd_, POLLOUT, 0};
    if (!regular_ && ::poll(&ready, 1, timeout_ms) <= 0) break;
    const std::size_t most = regular_ ? kFileBytes : kAtomicPipeBytes;
    const ssize_t taken = ::write(fd_, bytes.data() + written, std::min(most, bytes.size() - written));
    if (taken < 0 && (errno == EINTR || errno == EAGAIN)) break;
    if (taken <= 0)
      throw std::runtime_error("Cannot write to " + path_ + " (" + std::strerror(errno) +
                               "). The file is incomplete.");
    written += static_cast<std::size_t>(taken);
  }
  return written;
}

void OutputFile::close() {
  if (is_standard_output()) return;
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0)
    throw std::runtime_error("Cannot write to " + path_ + " (" + std::strerror(errno) +
                             "). The file is incomplete.");
}

void OutputFile::discard() {
  if (created_) ::unlink(path_.c_str());
}

// --- The debug dump

namespace {

/// Number of connections that are dumped with details, which take two requests each. The other connections
/// appear as in the listing.
constexpr std::size_t kMostDetailed = 1024;

/// Methods without parameters. Each of them has a section of its name in the dump.
constexpr std::array kViews{
    "status",  "config_show",      "reactors",       "procedures",   "credits",   "counters",
    "devices", "memory",           "topology",       "exports",      "upstreams", "upstream_counters",
    "reverse", "reverse_counters", "capture_status", "export_stats", "slow_calls"};

/// Returns the value of `make`, or its error as {"error": ...}. Throws errors that end the dump.
template <typename Make>
Json or_explain(Make&& make) {
  try {
    return make();
  } catch (const Unreachable&) {
    throw;
  } catch (const Forbidden&) {
    throw;
  } catch (const std::runtime_error& error) {
    return {{"error", error.what()}};
  }
}

Json ask_or_explain(const Client& client, const std::string& method,
                    const Json& parameters = Json::object()) {
  return or_explain([&] { return client.ask(method, parameters); });
}

/// Returns the path of the executable of a process, or null if this user may not read it.
Json program_of(const Json& plane) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/" + plane.value("pid", Json(0)).dump() + "/exe";
  const ssize_t bytes = ::readlink(link.c_str(), path.data(), path.size());
  return bytes > 0 ? Json(std::string(path.data(), static_cast<std::size_t>(bytes))) : Json(nullptr);
}

Json system() {
  utsname name{};
  ::uname(&name);
  Json result = {{"kernel", name.release}, {"machine", name.machine}};
  constexpr std::string_view kKey = "PRETTY_NAME=";
  std::FILE* const release = std::fopen("/etc/os-release", "re");
  if (release == nullptr) return result;
  char buffer[256];
  while (std::fgets(buffer, sizeof buffer, release) != nullptr)
    if (const std::string_view line = buffer; line.starts_with(kKey))
      result["release"] = std::string(line.substr(kKey.size(), line.find('\n') - kKey.size()));
  std::fclose(release);
  return result;
}

Json list_or_explain(const Client& client, const std::string& list) {
  return or_explain([&] {
    Json all = Json::array();
    for_each_page(client, list, Json::object(), [&](const Json& rows) {
      for (const Json& row : rows) all.push_back(row);
      return true;
    });
    return all;
  });
}

/// Returns all connections. The first kMostDetailed have their details and the calls recorded by their trace.
Json connections(const Client& client) {
  Json all = list_or_explain(client, "connections");
  if (!all.is_array()) return all;
  for (std::size_t i = 0; i < std::min(all.size(), kMostDetailed); ++i) {
    const Json number = {{"reactor", all[i]["reactor"]}, {"connection", all[i]["connection"]}};
    Json shown = ask_or_explain(client, "connection_show", number);
    const Json trace = ask_or_explain(client, "trace_read", number);
    shown["trace"] = trace.value("calls", trace);
    if (shown.contains("error")) shown.update(number);  // the connection has ended since
    all[i] = std::move(shown);
  }
  return all;
}

}  // namespace

Json debug_dump(const Client& client) {
  Json dump;
  for (const char* view : kViews) dump[view] = ask_or_explain(client, view);
  dump["properties"] = list_or_explain(client, "properties");
  dump["connections"] = connections(client);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  dump["time_s"] = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  dump["system"] = system();
  const Json& status = dump["status"];
  const Json control_plane = status.value("control_plane", Json::object());
  const Json data_plane = status.value("data_plane", Json::object());
  dump["versions"] = {{"sluicectl", SLUICE_VERSION},
                      {"control_plane", status.value("version", Json())},
                      {"control_plane_program", program_of(control_plane)},
                      {"data_plane", data_plane.value("version", Json())},
                      {"data_plane_program", program_of(data_plane)}};
  return dump;
}

void write_new_file(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    throw std::runtime_error("Cannot create " + path + " (" + std::strerror(errno) +
                             "). Name a file that does not exist, in a folder that you may write to.");
  std::size_t written = 0;
  ssize_t bytes = 0;
  while (written < text.size() && (bytes = ::write(fd, text.data() + written, text.size() - written)) > 0)
    written += static_cast<std::size_t>(bytes);
  const bool closed = ::close(fd) == 0;
  if (written < text.size() || !closed)
    throw std::runtime_error("Cannot write all of " + path + ". Check whether the file system is full.");
}

}  // namespace sluice::ctl
