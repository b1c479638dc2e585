// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/listen.h"

#include <csignal>
#include <ostream>

namespace sluice::conformance {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void request_stop(int) {
  stop_requested = 1;
}

MakeUpstream upstream_of(const std::string& address) {
  if (address.empty()) return [] { return std::make_unique<NullUpstream>(); };
  return [address] { return std::make_unique<TcpUpstream>(address); };
}

}  // namespace

std::vector<Result> listen(rdma::Device& device, rdma::ConnectionManager& manager,
                           const ListenOptions& options, std::ostream& log) {
  Judge judge;
  const MakeUpstream make_upstream = upstream_of(options.upstream);
  make_upstream();  // a wrong address is told at once
  Responder responder(device, manager, judge, make_upstream, options.responder);
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  log << "Listening on port " << options.responder.port << "." << std::endl;
  while (stop_requested == 0) {
    responder.turn();
    if (!responder.waiting().empty()) responder.serve(responder.take());
  }
  return judge.results(options.strict);
}

}  // namespace sluice::conformance
