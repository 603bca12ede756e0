// Rules of the page's source: `make lint`. The compiler checks types; these find faults that have a type.
import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import ts from "typescript-eslint";

export default ts.config(
  { ignores: ["node_modules", "src/api/schema.d.ts"] },
  js.configs.recommended,
  ts.configs.recommended,
  {
    files: ["**/*.ts", "**/*.tsx"],
    plugins: { "react-hooks": hooks },
    rules: {
      "react-hooks/rules-of-hooks": "error",
      "react-hooks/exhaustive-deps": "error",
      // `list[at]!` follows a check of the bounds; the compiler counts every index as possibly absent.
      "@typescript-eslint/no-non-null-assertion": "off",
      // The compiler reports undefined names.
      "no-undef": "off",
      eqeqeq: "error",
      "no-console": "error",
    },
  },
  { files: ["**/*.mjs"], languageOptions: { globals: { process: "readonly" } } },
);
