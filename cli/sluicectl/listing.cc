// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/listing.h"

#include <cstdint>

#include "cli/output.h"
#include "cli/sluicectl/print.h"

namespace sluice::ctl {

void for_each_page(const Client& client, const std::string& list, const Json& parameters,
                   const std::function<bool(const Json& rows)>& each) {
  Json from = std::uint64_t{0};
  do {
    Json asked = parameters;
    asked["from"] = from;
    Json page;
    try {
      page = client.ask(list + "_read", asked);
    } catch (const UnknownMethod&) {
      page = {{list, client.ask(list, parameters)}, {"next", nullptr}};
    }
    if (!each(page.at(list))) return;
    from = page.at("next");
  } while (!from.is_null());
}

void print_listing(const Client& client, const std::string& list, const Json& parameters, bool as_json) {
  RowPrinter printer(as_json);
  for_each_page(client, list, parameters, [&](const Json& rows) {
    printer.print(rows);
    return cli::flush_output();
  });
  printer.finish();
}

}  // namespace sluice::ctl
