// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/connections.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace sluice::cm {

bool Connections::command(std::uint32_t reactor, segment::Command command) {
  command.id = next_command_++;
  if (context_.layout.reactors[reactor].commands.push(command)) return true;
  ++context_.statistics.commands_lost;
  return false;
}

std::uint32_t Connections::least_loaded(std::uint32_t among) const {
  std::uint32_t best = segment::kMaxReactors;
  for (std::uint32_t reactor = 0; reactor < context_.config.block.reactors; ++reactor)
    if ((among >> reactor & 1) != 0 &&
        (best == segment::kMaxReactors || known_.load(reactor) < known_.load(best)))
      best = reactor;
  return best;
}

std::array<std::byte, rpcrdma::kPrivateDataBytes> own_private_data(const segment::ConfigBlock& block) {
  return rpcrdma::encode_private_data(
      {.remote_invalidation = false, .send_bytes = block.inline_bytes, .receive_bytes = block.inline_bytes});
}

std::optional<segment::Command> judge(const ConnectionContext& context, std::uint32_t reactor,
                                      const PeerAddress& peer, std::span<const std::byte> private_data,
                                      policy::Verdict& verdict, std::uint64_t now_ns) {
  const config::Config& config = context.config;
  const policy::CreditKeeper::Start start = context.credits.start_of(reactor, peer);
  verdict =
      context.admission.judge(peer, config.classes[start.client_class].max_connections_per_client, now_ns);
  if (verdict != policy::Verdict::Admit) {
    spdlog::warn("Connection request refused: {}", policy::to_string(verdict));
    return std::nullopt;
  }
  const std::uint32_t inline_bytes = config.block.inline_bytes;
  segment::Command command{.credits = config.block.credits,
                           .first_grant = start.credits,
                           .client_class = start.client_class,
                           .receive_inline_bytes = inline_bytes,
                           .send_inline_bytes = rpcrdma::send_inline_bytes(
                               rpcrdma::decode_private_data(private_data), inline_bytes)};
  const auto ours = own_private_data(config.block);
  std::copy(ours.begin(), ours.end(), command.private_data);
  command.private_data_bytes = ours.size();
  return command;
}

std::optional<segment::Command> Connections::admit(Id id, Known& known,
                                                   std::span<const std::byte> private_data,
                                                   policy::Verdict& verdict, std::uint64_t now_ns) {
  auto command = judge(context_, known.reactor, known.peer, private_data, verdict, now_ns);
  if (!command) return command;
  known.own.private_data.assign(command->private_data, command->private_data + command->private_data_bytes);
  command->type = segment::CommandType::Establish;
  command->cm_id = static_cast<std::uint32_t>(id);
  return command;
}

segment::Command Connections::connect_command(Id id, const Known& known,
                                              std::span<const std::byte> private_data) const {
  return {.type = segment::CommandType::Connect,
          .cm_id = static_cast<std::uint32_t>(id),
          .connection = known.connection,
          .queue_pair = known.own.qpn,
          .send_inline_bytes = rpcrdma::send_inline_bytes(rpcrdma::decode_private_data(private_data),
                                                          context_.config.block.inline_bytes)};
}

void Connections::report_failure(const Known& known) {
  command(known.reactor, {.type = segment::CommandType::ConnectFailed,
                          .connection = known.connection,
                          .queue_pair = known.own.qpn});
}

}  // namespace sluice::cm
