import { Component, type ComponentChildren, type FunctionComponent } from "preact";

/** Wrap a component so that it renders only if a prop is a different object. */
export function memo<Props extends object>(Inner: FunctionComponent<Props>) {
  return class extends Component<Props> {
    override shouldComponentUpdate(next: Props): boolean {
      return !same(this.props, next);
    }

    override render(props: Props): ComponentChildren {
      return <Inner {...props} />;
    }
  };
}

function same<Props extends object>(before: Props, after: Props): boolean {
  const names = Object.keys(after) as (keyof Props)[];
  return names.length === Object.keys(before).length && names.every((name) => before[name] === after[name]);
}
