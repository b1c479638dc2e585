// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/commands.h"

namespace sluice::reactor {
namespace {

bool makes_connection(const segment::Command& command) noexcept {
  return command.type == segment::CommandType::Accept || command.type == segment::CommandType::Connect;
}

}  // namespace

Commands::Commands(segment::ReactorArea& area, ConnectionSetup& setup, ServerDialer& dialer,
                   EventSender& events, Counters& counters, Clock clock)
    : area_(area), setup_(setup), dialer_(dialer), events_(events), counters_(counters), clock_(clock) {}

bool Commands::poll() noexcept {
  if (!send_answer()) return false;
  std::size_t count = 0;
  if (connecting_) {
    if (!finish_connecting() || !send_answer()) return true;
    ++count;
  }
  segment::Command command;
  for (; count < kCommandsPerPass; ++count) {
    if (waiting_)
      command = *waiting_;
    else if (!area_.commands.pop(command))
      return count > 0;
    if (makes_connection(command) && !(pace_.due(clock_()) && setup_.has_queue_pair())) {
      if (!waiting_) ++counters_.connections_delayed;
      waiting_ = command;
      return true;
    }
    waiting_.reset();
    run(command);
    if (connecting_ || !send_answer()) return true;
  }
  return true;
}

/// False while the answer to the last command finds no room: no further command is taken, so that none is lost.
bool Commands::send_answer() noexcept {
  if (answer_ && events_.try_send(*answer_)) answer_.reset();
  return !answer_;
}

void Commands::run(const segment::Command& command) noexcept {
  segment::Event done{.type = segment::EventType::CommandDone,
                      .id = command.id,
                      .cm_id = command.cm_id,
                      .connection = command.connection,
                      .peer = {}};
  const std::uint64_t begin_ns = makes_connection(command) ? clock_() : 0;
  done.status = execute(command, done);
  if (begin_ns != 0) pace_.made(begin_ns, clock_());
  if (!makes_connection(command) || done.status != segment::CommandStatus::Done) return answer(done);
  connecting_ = done;
  finish_connecting();
}

/// False while the device connects.
bool Commands::finish_connecting() noexcept {
  const auto status = setup_.finish(*connecting_);
  if (!status) return false;
  connecting_->status = *status;
  answer(*connecting_);
  connecting_.reset();
  return true;
}

void Commands::answer(const segment::Event& done) noexcept {
  ++(done.status == segment::CommandStatus::Done ? counters_.commands : counters_.commands_refused);
  if (done.id == 0) return;
  answer_ = done;
  if (!send_answer()) ++counters_.answers_delayed;
}

segment::CommandStatus Commands::execute(const segment::Command& command, segment::Event& done) noexcept {
  using segment::CommandStatus;
  switch (command.type) {
    case segment::CommandType::Accept:
      return setup_.accept(command, done);
    case segment::CommandType::Reject:
      return setup_.reject(command);
    case segment::CommandType::Connect:
      return dialer_.connect(command, done);
    case segment::CommandType::ConnectFailed:
      return dialer_.connect_failed(command);
    case segment::CommandType::Shutdown:
      shutdown_ = true;
      return CommandStatus::Done;
  }
  return CommandStatus::UnknownConnection;  // a type that is none
}

}  // namespace sluice::reactor
