// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bulk_load.h"

#include <vector>

#include "cli/bench/interrupt.h"
#include "dataplane/service/api/null.h"

namespace sluice::bench {
namespace {

struct Counted {
  std::uint64_t operations = 0;
  std::uint64_t errors = 0;
  std::uint32_t outstanding = 0;
};

void count(void* context, const rpcrdma::Reply& reply) noexcept {
  auto& counted = *static_cast<Counted*>(context);
  --counted.outstanding;
  ++counted.operations;
  xdr::Reader reader(reply.message());
  const auto decoded = rpc::decode_reply(reader);
  if (reply.status() != rpcrdma::CallStatus::Ok || !decoded.ok || !decoded.header.success()) ++counted.errors;
}

}  // namespace

BulkResult run_bulk(Client& client, const BulkConfig& config) {
  std::vector<std::byte> call(rpc::kMinCallBytes + xdr::kUnit + xdr::padded(config.call_bytes));
  xdr::Writer writer(call);
  rpc::encode_call(writer, {.program = service::kNullProgram,
                            .version = service::kNullVersion,
                            .procedure = service::kBulkProcedure,
                            .credential = {},
                            .verifier = {}});
  writer.u32(config.reply_bytes);
  Counted counted;
  const rpcrdma::Request request{
      .payload = call,
      .max_reply_bytes = static_cast<std::uint32_t>(rpc::kMinReplyBytes + xdr::padded(config.reply_bytes)),
      .completion = &count,
      .context = &counted};
  rpcrdma::Requester& requester = *client.sessions()[0].requester;
  client.poll();
  const std::uint64_t begin = client.now();
  const auto duration = static_cast<std::uint64_t>(config.seconds * 1e9);
  const Interruptible interruptible;
  while (client.now() - begin < duration && !interruptible.told_to_end()) {
    while (counted.outstanding < config.depth && requester.submit(request)) ++counted.outstanding;
    client.poll();
  }
  const BulkResult result{.seconds = static_cast<double>(client.now() - begin) / 1e9,
                          .operations = counted.operations,
                          .errors = counted.errors};
  while (counted.outstanding > 0) client.poll();
  return result;
}

}  // namespace sluice::bench
