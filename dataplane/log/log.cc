// SPDX-License-Identifier: Apache-2.0
#include "dataplane/log/log.h"

#include <fmt/args.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "dataplane/log/log_queue.h"

namespace sluice::log {
namespace {

spdlog::level::level_enum number_of(Level level) {
  return static_cast<spdlog::level::level_enum>(std::min(level, Level::Off));
}

bool is_control(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return byte < 0x20 || byte == 0x7f;
}

/// Returns the text with each control character replaced by \xNN.
std::string escaped(std::string_view text) {
  std::string line;
  for (const char character : text) {
    if (is_control(character))
      fmt::format_to(std::back_inserter(line), "\\x{:02x}", static_cast<unsigned char>(character));
    else
      line += character;
  }
  return line;
}

}  // namespace

void set_level(Level level) {
  spdlog::set_level(number_of(level));
}

Level level() {
  return static_cast<Level>(spdlog::get_level());
}

Level level_named(std::string_view name) {
  return static_cast<Level>(spdlog::level::from_str(std::string(name)));
}

void write(Level level, std::string_view format, std::span<const Argument> arguments) {
  if (!spdlog::should_log(number_of(level))) return;
  fmt::dynamic_format_arg_store<fmt::format_context> values;
  for (const Argument& argument : arguments) {
    switch (argument.kind()) {
      case Argument::Kind::Signed:
        values.push_back(argument.as_signed());
        break;
      case Argument::Kind::Unsigned:
        values.push_back(argument.as_unsigned());
        break;
      case Argument::Kind::Real:
        values.push_back(argument.as_real());
        break;
      case Argument::Kind::Text:
        values.push_back(argument.as_text());
        break;
    }
  }
  write(level, fmt::vformat(format, values));
}

void write(Level level, std::string_view line) {
  if (std::any_of(line.begin(), line.end(), is_control))
    spdlog::default_logger_raw()->log(number_of(level), escaped(line));
  else
    spdlog::default_logger_raw()->log(number_of(level), line);
}

}  // namespace sluice::log

namespace sluice {

struct LogQueue::State {
  explicit State(int to) : descriptor(to) {}

  const int descriptor;
  std::atomic<std::uint64_t> dropped{0};
  std::mutex mutex{};
  std::condition_variable changed{};
  // The mutex protects the members below.
  std::deque<std::string> lines{};
  std::uint64_t told = 0;  ///< number of dropped lines that the log has reported
  bool writing = false;
  bool stopped = false;

  void run() {
    ::pthread_setname_np(::pthread_self(), "log");
    sigset_t pipe;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    std::unique_lock lock(mutex);
    for (;;) {
      writing = false;
      changed.notify_all();
      changed.wait(lock, [this] { return stopped || !lines.empty(); });
      if (lines.empty()) return;
      std::string text = std::move(lines.front());
      lines.pop_front();
      if (const std::uint64_t all = dropped; all != told)
        text += std::to_string(all - std::exchange(told, all)) +
                " lines of the log are lost: what it is written to was too slow\n";
      writing = true;
      lock.unlock();
      write(text);
      lock.lock();
    }
  }

  void write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor, text.data(), text.size());
      if (written > 0) {
        text.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno == EAGAIN) {  // Another process that shares the descriptor has made it nonblocking.
        pollfd ready{descriptor, POLLOUT, 0};
        ::poll(&ready, 1, -1);
        if ((ready.revents & (POLLERR | POLLNVAL)) != 0) return;
      } else if (errno != EINTR) {
        return;
      }
    }
  }
};

LogQueue::LogQueue(int descriptor) : state_(std::make_shared<State>(descriptor)) {
  std::thread([state = state_] { state->run(); }).detach();
}

LogQueue::~LogQueue() {
  drain(kLogEndMs);
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->changed.notify_all();
}

std::uint64_t LogQueue::dropped() const {
  return state_->dropped.load(std::memory_order_relaxed);
}

void LogQueue::drain(std::uint32_t limit_ms) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms),
                           [this] { return state_->lines.empty() && !state_->writing; });
}

void LogQueue::add(std::string line) {
  if (line.size() > kMaxLineBytes) line.resize(kMaxLineBytes);
  if (line.empty() || line.back() != '\n') line += '\n';
  const std::lock_guard lock(state_->mutex);
  if (state_->lines.size() >= kMaxQueuedLines) {
    state_->dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  state_->lines.push_back(std::move(line));
  state_->changed.notify_all();
}

namespace {

/// spdlog sink that formats messages and adds them to the queue.
class QueueSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit QueueSink(std::shared_ptr<LogQueue> queue) : queue_(std::move(queue)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    queue_->add(std::string(formatted.data(), formatted.size()));
  }
  void flush_() override {}

  const std::shared_ptr<LogQueue> queue_;
};

}  // namespace

std::shared_ptr<LogQueue> log_by_queue() {
  auto queue = std::make_shared<LogQueue>(STDOUT_FILENO);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", std::make_shared<QueueSink>(queue)));
  return queue;
}

}  // namespace sluice
