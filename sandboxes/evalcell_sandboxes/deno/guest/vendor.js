// What others have written and we use, unchanged, from files of theirs that need no others. As text it is there ten
// milliseconds sooner than as modules, which Deno reads through before it runs them.
import acornText from "./vendor/acorn.js" with { type: "text" };
import tomlText from "./vendor/smol-toml.cjs" with { type: "text" };
import vm from "node:vm";

function loaded(text, filename) {
  const module = { exports: {} };
  new vm.Script(`(function (module, exports) {${text}\n})`, { filename }).runInThisContext()(module, module.exports);
  return module.exports;
}

/** The parser of JavaScript, https://github.com/acornjs/acorn. */
export const acorn = loaded(acornText, "acorn");

/** The parser of TOML, https://github.com/squirrelchat/smol-toml. Few sources need it. */
export const toml = () => loaded(tomlText, "smol-toml");
//# sourceURL=evalcell:vendor
