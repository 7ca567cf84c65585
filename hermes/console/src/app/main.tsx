import { render } from "preact";
import "./styles/base.css";
import "./styles/chat.css";
import "./styles/panels.css";
import { logIn } from "./actions";
import { applyTheme, key } from "./store";
import { App } from "./view/app";

applyTheme();
if (key.value !== null) logIn(key.value);
render(<App />, document.getElementById("console")!);
